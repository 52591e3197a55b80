//! Strings of Python that templates have and minijinja has not: those over several lines, and those before `%`.

/// Takes the backslashes at ends of lines out of a template's strings, with these ends: a line continues there in
/// Python. Strings that `%` fills become ones that the filter `format` fills.
pub(super) fn rewrite(source: &str) -> String {
    let mut joined = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest
        .find("{{")
        .into_iter()
        .chain(rest.find("{%"))
        .chain(rest.find("{#"))
        .min()
    {
        let end = start + tag_length(&rest[start..]);
        joined.push_str(&rest[..start]);
        if rest[start..].starts_with("{#") {
            joined.push_str(&rest[start..end]);
        } else {
            joined.push_str(&formatted(&joined_tag(&rest[start..end])));
        }
        rest = &rest[end..];
    }
    joined.push_str(rest);
    joined
}

/// Returns the bytes of the tag or comment at the start of a text, all of it if it does not end.
fn tag_length(text: &str) -> usize {
    let end = match &text[..2] {
        "{{" => "}}",
        "{%" => "%}",
        _ => return text.find("#}").map_or(text.len(), |end| end + 2),
    };
    let mut quote = None;
    let mut characters = text.char_indices().skip(2);
    while let Some((place, character)) = characters.next() {
        match (character, quote) {
            // What is escaped ends no string.
            ('\\', Some(_)) => {
                characters.next();
            }
            (_, Some(open)) if open == character => quote = None,
            ('\'' | '"', None) => quote = Some(character),
            (_, None) if text[place..].starts_with(end) => return place + 2,
            _ => {}
        }
    }
    text.len()
}

/// Returns a tag without continued lines.
fn joined_tag(tag: &str) -> String {
    let mut joined = String::with_capacity(tag.len());
    let mut characters = tag.chars().peekable();
    while let Some(character) = characters.next() {
        let after = if character == '\\' {
            characters.peek().copied()
        } else {
            None
        };
        match after {
            Some('\n') => {
                characters.next();
            }
            Some('\r') => {
                characters.next();
                characters.next_if_eq(&'\n');
            }
            // Whatever is escaped, a backslash too, is not looked at again.
            Some(escaped) => {
                joined.extend([character, escaped]);
                characters.next();
            }
            None => joined.push(character),
        }
    }
    joined
}

/// Returns a tag with `'…'|format(x)` in place of `'…' % x`, and `'…'|format(x, y)` of `'…' % (x, y)`.
fn formatted(tag: &str) -> String {
    let mut formatted = String::with_capacity(tag.len());
    let mut rest = tag;
    while let Some(start) = rest.find(['\'', '"']) {
        let end = start + text_length(&rest[start..]);
        formatted.push_str(&rest[..end]);
        rest = &rest[end..];
        let operator = rest.trim_start();
        if !operator.starts_with('%') || operator.starts_with("%}") {
            continue;
        }
        let operand = operator[1..].trim_start();
        let (operand, after) = operand.split_at(operand_length(operand));
        let values = operand.strip_prefix('(').and_then(|values| values.strip_suffix(')'));
        let values = values
            .filter(|_| bracket_length(operand) == operand.len())
            .unwrap_or(operand);
        formatted.push_str(&format!("|format({})", values.trim_end().trim_end_matches(',')));
        rest = after;
    }
    formatted.push_str(rest);
    formatted
}

/// Returns the bytes of what `%` fills a string with: a value, its parts and its filters.
fn operand_length(text: &str) -> usize {
    let mut length = 0;
    loop {
        let rest = &text[length..];
        let after = rest.trim_start();
        length += match rest.chars().next() {
            Some('\'' | '"') => text_length(rest),
            Some('(' | '[' | '{') => bracket_length(rest),
            Some(part) if part.is_alphanumeric() || "_.".contains(part) => part.len_utf8(),
            Some('-' | '+') if length == 0 => 1,
            // A filter, perhaps with space around it.
            _ if after.starts_with('|') => rest.len() - after[1..].trim_start().len(),
            _ => return length,
        };
    }
}

/// Returns the bytes of a bracket at the start of a text and of all up to its end.
fn bracket_length(text: &str) -> usize {
    let (mut length, mut depth) = (0, 0);
    while let Some(character) = text[length..].chars().next() {
        length += match character {
            '\'' | '"' => text_length(&text[length..]),
            other => other.len_utf8(),
        };
        match character {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    length
}

/// Returns the bytes of the string at the start of a text, with its quotes.
fn text_length(text: &str) -> usize {
    let mut characters = text.char_indices();
    let quote = characters.next().map(|(_, quote)| quote);
    while let Some((place, character)) = characters.next() {
        if character == '\\' {
            characters.next();
        } else if Some(character) == quote {
            return place + 1;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::rewrite;

    #[test]
    fn lines_of_strings_continue_after_a_backslash() {
        assert_eq!(rewrite("a\\\n{{ 'b\\\nc' }}\\\n"), "a\\\n{{ 'bc' }}\\\n");
        assert_eq!(
            rewrite("{% set x = \"1\\\r\n2\\n\\\\\n3\" %}"),
            "{% set x = \"12\\n\\\\\n3\" %}"
        );
        assert_eq!(
            rewrite("{{ '}}\\\n\\'' }}{# '\\\n #}{{ \"'\\\n\" }}"),
            "{{ '}}\\'' }}{# '\\\n #}{{ \"'\" }}"
        );
        assert_eq!(rewrite("{% never ends '\\\n"), "{% never ends '");
        assert_eq!(rewrite("{"), "{");
    }

    #[test]
    fn strings_before_a_percent_sign_are_formatted() {
        for (source, expected) in [
            ("{{ '%s' % x }}", "{{ '%s'|format(x) }}"),
            (
                "{%- set a = \"%d%% '%s'\" % (x.y[')'], f(1, z)) ~ 'b' -%}",
                "{%- set a = \"%d%% '%s'\"|format(x.y[')'], f(1, z)) ~ 'b' -%}",
            ),
            (
                "{{ '%s' %x|upper | trim + 'c' }}",
                "{{ '%s'|format(x|upper | trim) + 'c' }}",
            ),
            (
                "{{ '%s' % (x).y }}{{ '%s' % (x,) }}",
                "{{ '%s'|format((x).y) }}{{ '%s'|format(x) }}",
            ),
            (
                "{% set a = '50%' %}{{ 7 % 4 }} '%s' % x",
                "{% set a = '50%' %}{{ 7 % 4 }} '%s' % x",
            ),
        ] {
            assert_eq!(rewrite(source), expected);
        }
    }
}
