//! Strings of a template that go over several lines.

/// Takes the backslashes at ends of lines out of a template's strings, with these ends: a line continues there in
/// Python, whose strings Jinja has, but not in minijinja.
pub(super) fn join(source: &str) -> String {
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
            join_tag(&rest[start..end], &mut joined);
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

/// Appends a tag without continued lines.
fn join_tag(tag: &str, joined: &mut String) {
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
}

#[cfg(test)]
mod tests {
    use super::join;

    #[test]
    fn lines_of_strings_continue_after_a_backslash() {
        assert_eq!(join("a\\\n{{ 'b\\\nc' }}\\\n"), "a\\\n{{ 'bc' }}\\\n");
        assert_eq!(
            join("{% set x = \"1\\\r\n2\\n\\\\\n3\" %}"),
            "{% set x = \"12\\n\\\\\n3\" %}"
        );
        assert_eq!(
            join("{{ '}}\\\n\\'' }}{# '\\\n #}{{ \"'\\\n\" }}"),
            "{{ '}}\\'' }}{# '\\\n #}{{ \"'\" }}"
        );
        assert_eq!(join("{% never ends '\\\n"), "{% never ends '");
        assert_eq!(join("{"), "{");
    }
}
