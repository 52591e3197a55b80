//! `NamePattern`: names parameters by a pattern of their global names.

use glob::{MatchOptions, Pattern};

/// How many names come near a pattern that matches none.
const NEAREST: usize = 4;

const WHOLE_NAMES: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

/// A pattern of names with dots between their parts: `*` stands for a part or some of one, `**` for any number of
/// parts, `{query,key}` for either.
#[derive(Clone, Debug)]
pub(crate) struct NamePattern {
    text: String,
    /// One for each of the names in braces.
    globs: Vec<Pattern>,
}

impl NamePattern {
    /// Returns the pattern that a text is, or what is wrong with it.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        let alternatives = without_braces(text).ok_or_else(|| "a brace without its other half".to_owned())?;
        let globs = alternatives.iter().map(|alternative| Pattern::new(&path(alternative)));
        Ok(Self {
            text: text.to_owned(),
            globs: globs.collect::<Result<_, _>>().map_err(|error| error.to_string())?,
        })
    }

    /// Whether it names a parameter.
    pub(crate) fn matches(&self, name: &str) -> bool {
        let name = path(name);
        self.globs.iter().any(|glob| glob.matches_with(&name, WHOLE_NAMES))
    }

    /// Says which names come near the pattern: those that share the most parts with it.
    pub(crate) fn nearest<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> String {
        let words: Vec<&str> = self.text.split(['.', '*', '{', '}', ',']).collect();
        let is_shared = |part: &&str| !part.is_empty() && words.contains(part);
        let mut names: Vec<&str> = names.into_iter().collect();
        names.sort_by_key(|name| std::cmp::Reverse(name.split('.').filter(is_shared).count()));
        names.truncate(NEAREST);
        if names.is_empty() {
            "the model has no float parameter".to_owned()
        } else {
            format!("the nearest are {}", names.join(", "))
        }
    }
}

/// A name as globs take it: `*` stops at the end of one.
fn path(name: &str) -> String {
    name.replace('.', "/")
}

/// The pattern with each of the names in its braces, `{a,b}`; `None` if a brace is alone.
fn without_braces(pattern: &str) -> Option<Vec<String>> {
    let Some(open) = pattern.find('{') else {
        return (!pattern.contains('}')).then(|| vec![pattern.to_owned()]);
    };
    let (before, rest) = (&pattern[..open], &pattern[open + 1..]);
    let close = rest.find('}')?;
    let after = without_braces(&rest[close + 1..])?;
    let names = rest[..close].split(',');
    Some(
        names
            .flat_map(|name| after.iter().map(move |after| format!("{before}{name}{after}")))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_parts_of_names() {
        let matches = |pattern, name| NamePattern::new(pattern).unwrap().matches(name);
        assert!(matches("wte.weight", "wte.weight"));
        assert!(matches("h.*.attn.c_*.weight", "h.11.attn.c_attn.weight"));
        assert!(!matches("h.*.weight", "h.11.attn.c_attn.weight"));
        assert!(matches("h.**", "h.11.attn.c_attn.weight") && !matches("h.**", "wte.weight"));
        assert!(matches("**.{bias,weight}", "h.1.ln_1.bias") && !matches("**.{bias,weight}", "h.1.ln_1.scale"));
        assert!(NamePattern::new("h.{0").is_err() && NamePattern::new("h.[").is_err());
    }
}
