//! The generated CUDA C++ source, made ready for a C++ compiler of the host.
//!
//! Five things are written differently, and nothing else: the declaration of dynamic shared memory, `asm` statements,
//! the number of threads and the names of whole numbers that the host's headers have, which are left out, and at the
//! end a function that calls the kernel is added.

/// Returns a kernel's source for the host.
///
/// # Errors
///
/// If an `asm` statement is not understood.
pub fn for_host(source: &str, kernel: &str) -> Result<String, String> {
    let mut text = String::with_capacity(source.len() + 512);
    for line in source.lines() {
        if let Some((of, name, after)) = shared_memory(line) {
            text.push_str(&format!(
                "{of}* const {name} = reinterpret_cast<{of}*>(emulator::shared());{after}"
            ));
        } else if is_name_of_integer(line) {
            // The line stays, so that the compiler's messages name the source's.
        } else if let Some((before, after)) = launch_bounds(line) {
            text.push_str(before);
            text.push_str(after);
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

/// Returns the type and the name of dynamic shared memory that a line declares, aligned in one way or another, and what
/// else is on the line.
fn shared_memory(line: &str) -> Option<(&str, &str, &str)> {
    let rest = line.trim_start().strip_prefix("extern __shared__ ")?;
    let rest = rest
        .strip_prefix("__align__(")
        .map_or(Some(rest), |rest| Some(rest.split_once(')')?.1))?;
    let (declared, after) = rest.split_once("[];")?;
    let (of, name) = declared.trim().rsplit_once(' ')?;
    Some((of.trim(), name, after))
}

/// Returns whether a line names a type of whole numbers as `stdint.h` does, of which one of 64 bits is another there.
fn is_name_of_integer(line: &str) -> bool {
    let name = line
        .strip_prefix("typedef ")
        .and_then(|rest| rest.strip_suffix("_t;")?.rsplit_once(' '));
    name.is_some_and(|(_, name)| {
        let bits = name.trim_start_matches('u').strip_prefix("int");
        bits.is_some_and(|bits| matches!(bits, "8" | "16" | "32" | "64"))
    })
}

/// Returns what is before and after the number of threads that a kernel is declared for: a launch says it again, and
/// kernels that are equal but for it are compiled once.
fn launch_bounds(line: &str) -> Option<(&str, &str)> {
    let (before, after) = line.split_once("__launch_bounds__(")?;
    let (_, after) = after.split_once(')')?;
    Some((before, after))
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
    fn shared_memory_is_the_emulators_and_names_of_integers_are_the_hosts() {
        for (source, expected) in [
            (
                "extern __shared__ __align__(16) uint8 dynamic_shared_mem[];",
                "uint8* const dynamic_shared_mem = reinterpret_cast<uint8*>(emulator::shared());",
            ),
            (
                "  extern __shared__ unsigned char v1[];",
                "unsigned char* const v1 = reinterpret_cast<unsigned char*>(emulator::shared());",
            ),
            (
                "extern __shared__ __align__(4) char v7[];uint32_t const v3 = 0;",
                "char* const v7 = reinterpret_cast<char*>(emulator::shared());uint32_t const v3 = 0;",
            ),
            ("typedef unsigned long long uint64_t;", ""),
            ("typedef long long int_t;", "typedef long long int_t;"),
            ("typedef short2 int16_t2;", "typedef short2 int16_t2;"),
        ] {
            assert_eq!(for_host(source, "k").unwrap().lines().next(), Some(expected));
        }
    }

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
}
