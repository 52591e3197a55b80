//! The generated CUDA C++ source, made ready for a C++ compiler of the host.
//!
//! Three things are written differently, and nothing else: the declaration of dynamic shared memory, `asm` statements,
//! and at the end a function that calls the kernel is added.

/// What CubeCL declares dynamic shared memory with.
const SHARED: &str = "uint8 dynamic_shared_mem[];";

/// Returns a kernel's source for the host.
///
/// # Errors
///
/// If an `asm` statement is not understood.
pub fn for_host(source: &str, kernel: &str) -> Result<String, String> {
    let source = canonical(source);
    let mut text = String::with_capacity(source.len() + 512);
    for line in source.lines() {
        if line.starts_with("extern __shared__") && line.ends_with(SHARED) {
            text.push_str("uint8* const dynamic_shared_mem = emulator::shared();");
        } else {
            text.push_str(line);
        }
        text.push('\n');
    }
    let mut text = rewrite_assembly(&text)?;
    text.push_str(&format!(
        "\nextern \"C\" int emulator_arguments() {{ return emulator::Call<decltype(&{kernel})>::kCount; }}\n\
         extern \"C\" void emulator_entry(void** arguments) {{ emulator::Call<decltype(&{kernel})>::run({kernel}, \
         arguments); }}\n"
    ));
    Ok(text)
}

/// Returns the source as it would be the first of the process, in one order: temporary variables count through the
/// process, and types and variables are declared in a random order, on which what compilers make of the source depends.
pub(crate) fn canonical(source: &str) -> String {
    const TYPE: &str = "\nstruct __align__(";
    let mut parts = source.split(TYPE);
    let head = parts.next().unwrap_or_default();
    let mut types: Vec<&str> = parts.collect();
    // The last type is followed by everything else.
    let rest = types.last_mut().and_then(|last| {
        let end = last.find("};")? + 2;
        let (declaration, rest) = last.split_at(end);
        *last = declaration;
        Some(rest)
    });
    types.sort_unstable();
    let mut text = head.to_string();
    for declaration in types {
        text.push_str(TYPE);
        text.push_str(declaration);
    }
    text.push_str(rest.unwrap_or_default());
    renumber(&in_order(&text))
}

/// Declares variables in the order of their numbers.
fn in_order(text: &str) -> String {
    let number = |line: &str| -> Option<u32> {
        let (kind, number) = line.strip_suffix(';')?.rsplit_once(" l_mut_")?;
        // Without a value: else it is an assignment.
        (!kind.contains('=')).then(|| number.parse().ok())?
    };
    let mut lines: Vec<&str> = text.split('\n').collect();
    for declarations in lines.chunk_by_mut(|one, next| number(one).is_some() && number(next).is_some()) {
        declarations.sort_by_key(|line| number(line));
    }
    lines.join("\n")
}

/// Numbers temporary variables in the order of their appearance.
fn renumber(text: &str) -> String {
    const NAME: &str = "_tmp_";
    let mut numbers = std::collections::HashMap::new();
    let mut parts = text.split(NAME);
    let mut result = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let end = part.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(part.len());
        let (number, rest) = part.split_at(end);
        let next = numbers.len();
        let number = *numbers.entry(number).or_insert(next);
        result.push_str(&format!("{NAME}{number}{rest}"));
    }
    result
}

/// Replaces every `asm` statement by a call of the emulator with the same text and operands.
fn rewrite_assembly(source: &str) -> Result<String, String> {
    let mut result = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = find_word(rest, "asm") {
        result.push_str(&rest[..start]);
        let after = rest[start + 3..].trim_start();
        let after = after.strip_prefix("volatile").unwrap_or(after).trim_start();
        let (inside, end) = parenthesised(after).ok_or_else(|| format!("no asm statement: {after:.60}"))?;
        result.push_str(&call(inside)?);
        rest = &after[end..];
    }
    result.push_str(rest);
    Ok(result)
}

/// Returns where a word begins that is no part of another.
fn find_word(text: &str, word: &str) -> Option<usize> {
    let is_part = |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    text.match_indices(word).map(|(index, _)| index).find(|&index| {
        !is_part(text[..index].chars().next_back()) && !is_part(text[index + word.len()..].chars().next())
    })
}

/// Returns what the parentheses hold that a text begins with, and where they end.
fn parenthesised(text: &str) -> Option<(&str, usize)> {
    if !text.starts_with('(') {
        return None;
    }
    let end = pieces(text).find_map(|(index, depth, letter)| (letter == ')' && depth == 0).then_some(index))?;
    Some((&text[1..end], end + 1))
}

/// Yields the characters outside string literals, each with its place and the depth of parentheses after it.
fn pieces(text: &str) -> impl Iterator<Item = (usize, usize, char)> {
    let (mut depth, mut in_string, mut is_escaped) = (0usize, false, false);
    text.char_indices().filter_map(move |(index, letter)| {
        if in_string {
            in_string = is_escaped || letter != '"';
            is_escaped = !is_escaped && letter == '\\';
            return None;
        }
        match letter {
            '"' => in_string = true,
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => return Some((index, depth, letter)),
        }
        Some((index, depth, letter)).filter(|_| letter != '"')
    })
}

/// Splits at a character outside strings and parentheses.
fn split(text: &str, at: char) -> Vec<&str> {
    let places = pieces(text).filter(|&(_, depth, letter)| depth == 0 && letter == at);
    let mut parts = Vec::new();
    let mut start = 0;
    for (index, ..) in places {
        parts.push(&text[start..index]);
        start = index + at.len_utf8();
    }
    parts.push(&text[start..]);
    parts
}

/// Returns the call of the emulator for what an `asm` statement holds: text, outputs, inputs, what it overwrites.
fn call(inside: &str) -> Result<String, String> {
    let sections = split(inside, ':');
    let text = sections[0].trim();
    let mut arguments = vec![text.to_string()];
    for (section, direction) in sections.iter().skip(1).zip(["out", "in"]) {
        for operand in split(section, ',')
            .into_iter()
            .map(str::trim)
            .filter(|operand| !operand.is_empty())
        {
            let expression = operand.find('(').and_then(|start| parenthesised(&operand[start..]));
            let (expression, _) = expression.ok_or_else(|| format!("no operand of asm: {operand}"))?;
            arguments.push(format!("::emulator::{direction}({expression})"));
        }
    }
    Ok(format!("::emulator::assembly_of({})", arguments.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assembly_becomes_a_call() {
        let source = r#"x; asm volatile("add %0, %1;\n"
            " // :" : "=r"(a) : "r"(f(b, c)), "n"(16) : "memory"); my_asm(1);"#;
        let expected = r#"x; ::emulator::assembly_of("add %0, %1;\n"
            " // :", ::emulator::out(a), ::emulator::in(f(b, c)), ::emulator::in(16)); my_asm(1);"#;
        assert_eq!(rewrite_assembly(source).unwrap(), expected);
        let source = r#"asm("wait [%0];" :: "r"(::cuda::address(bar)));"#;
        let expected = r#"::emulator::assembly_of("wait [%0];", ::emulator::in(::cuda::address(bar)));"#;
        assert_eq!(rewrite_assembly(source).unwrap(), expected);
    }

    #[test]
    fn the_order_of_types_and_the_numbers_of_temporaries_do_not_matter() {
        let kernel = |first: &str, second: &str, number: u32| {
            format!(
                "head\nstruct __align__(4) {first} {{ }};\nstruct __align__(4) {second} {{ }};\nbody _tmp_{number} = \
                 _tmp_{number};"
            )
        };
        assert_eq!(canonical(&kernel("a", "b", 7)), canonical(&kernel("b", "a", 12)));
        assert_ne!(canonical(&kernel("a", "b", 7)), canonical(&kernel("a", "c", 7)));
    }

    #[test]
    fn the_order_of_declarations_does_not_matter_and_that_of_assignments_stays() {
        let kernel =
            |declarations: &str| format!("head\n{declarations}\nl_mut_9 = l_mut_12;\nl_mut_8 = l_mut_9;\n}}\n");
        let ordered = kernel("uint32 l_mut_8;\nfloat_4 l_mut_9;\nfloat l_mut_12;");
        assert_eq!(canonical(&ordered), ordered);
        let other = kernel("float l_mut_12;\nuint32 l_mut_8;\nfloat_4 l_mut_9;");
        assert_eq!(canonical(&other), ordered);
    }
}
