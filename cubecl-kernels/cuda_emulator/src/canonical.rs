//! One source for equal kernels: CubeCL numbers some of their variables in a random order.
//!
//! What was compiled once would not be found again.

use std::collections::HashMap;

/// Returns a source whose variables, `v` and a number, are numbered in the order of their appearance.
pub fn renumbered(source: &str) -> String {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut numbers = HashMap::new();
    let mut result = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((before, after)) = rest.split_once('v') {
        result.push_str(before);
        let end = after
            .find(|letter: char| !letter.is_ascii_digit())
            .unwrap_or(after.len());
        let (number, tail) = after.split_at(end);
        // Words of instructions follow a dot.
        let is_within = result.ends_with(|letter| is_part(letter) || letter == '.') || tail.starts_with(is_part);
        result.push('v');
        if number.is_empty() || is_within {
            result.push_str(number);
        } else {
            let next = numbers.len();
            result.push_str(&numbers.entry(number).or_insert(next).to_string());
        }
        rest = tail;
    }
    result.push_str(rest);
    result
}

#[cfg(test)]
mod tests {
    use super::renumbered;

    #[test]
    fn numbers_of_variables_do_not_matter_and_instructions_keep_theirs() {
        let kernel = |first: u32, second: u32| {
            format!("int const v{first} = 1; v{second}.i_0 = v{first}; asm(\"atom.v2.f32\"); info_v{second}; uv3;")
        };
        let text = renumbered(&kernel(7, 12));
        assert_eq!(
            text,
            "int const v0 = 1; v1.i_0 = v0; asm(\"atom.v2.f32\"); info_v12; uv3;"
        );
        assert_eq!(renumbered(&kernel(3, 12)), text);
    }
}
