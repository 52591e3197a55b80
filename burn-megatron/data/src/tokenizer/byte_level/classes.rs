//! Letters, numbers, white space: what the patterns of pre-tokenizers distinguish.

use std::sync::LazyLock;

use regex_syntax::hir::{Class, HirKind};

/// What a character is in a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum CharClass {
    /// Punctuation, symbols, marks, control characters, unassigned characters.
    Other,
    /// `\p{L}`.
    Letter,
    /// `\p{N}`.
    Number,
    /// `\s`.
    Space,
}

/// Unicode's version in the Oniguruma of the `tokenizers` package: later letters are no letters there.
const AGE: &str = "16.0";

static CLASSES: LazyLock<Vec<CharClass>> = LazyLock::new(|| {
    let mut classes = vec![CharClass::Other; char::MAX as usize + 1];
    for (property, class) in [
        (format!(r"[\p{{L}}&&\p{{Age:{AGE}}}]"), CharClass::Letter),
        (format!(r"[\p{{N}}&&\p{{Age:{AGE}}}]"), CharClass::Number),
        (r"\s".to_owned(), CharClass::Space),
    ] {
        let pattern = regex_syntax::parse(&property).expect("a property of Unicode");
        let HirKind::Class(Class::Unicode(ranges)) = pattern.kind() else {
            unreachable!("a class of characters");
        };
        for range in ranges.ranges() {
            classes[range.start() as usize..=range.end() as usize].fill(class);
        }
    }
    classes
});

/// The table of all characters.
#[derive(Debug, Clone, Copy)]
pub(super) struct CharClasses(&'static [CharClass]);

impl CharClasses {
    /// Returns the table, which is made once per process.
    pub(super) fn new() -> Self {
        Self(&CLASSES)
    }

    pub(super) fn of(self, character: char) -> CharClass {
        self.0[character as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers are those of all characters in `ByteLevel` of `tokenizers` 0.23.3 from the Python package index.
    #[test]
    fn classes_are_those_of_oniguruma() {
        let count = |class| CLASSES.iter().filter(|&&of| of == class).count();
        assert_eq!(
            [CharClass::Letter, CharClass::Number, CharClass::Space].map(count),
            [141_028, 1_911, 25]
        );
    }
}
