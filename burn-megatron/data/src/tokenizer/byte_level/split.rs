//! The patterns of byte-level pre-tokenizers, without a regular expression engine: one pass, no backtracking.

use super::classes::{CharClass, CharClasses};

/// How text is cut into words, before pairs of bytes are merged within each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pattern {
    Gpt2,
    /// That of Llama 3 and of OpenAI's `cl100k_base`, and with one digit that of Qwen 2.
    Llama3 {
        /// Most digits of a word.
        max_digits: usize,
    },
}

const LLAMA_3: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const QWEN_2: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

impl Pattern {
    /// Returns the pattern of a regular expression, if it is one of those known here.
    pub(super) fn of(expression: &str) -> Option<Self> {
        match expression {
            LLAMA_3 => Some(Self::Llama3 { max_digits: 3 }),
            QWEN_2 => Some(Self::Llama3 { max_digits: 1 }),
            _ => None,
        }
    }

    /// Returns the length in bytes of the first word of `text`, which is not empty.
    pub(super) fn first_word(self, text: &str, classes: CharClasses) -> usize {
        let mut cursor = Cursor {
            text,
            classes,
            position: 0,
        };
        match self {
            Self::Gpt2 => gpt2(&mut cursor),
            Self::Llama3 { max_digits } => llama3(&mut cursor, max_digits),
        }
        debug_assert!(cursor.position > 0, "a word has at least one character");
        cursor.position
    }
}

/// A position in a text.
struct Cursor<'a> {
    text: &'a str,
    classes: CharClasses,
    position: usize,
}

impl Cursor<'_> {
    /// Returns the character at the position and its class.
    fn peek(&self) -> Option<(char, CharClass)> {
        let character = self.text[self.position..].chars().next()?;
        Some((character, self.classes.of(character)))
    }

    /// Moves after the characters of this class.
    fn skip(&mut self, class: CharClass) {
        while let Some((character, of)) = self.peek()
            && of == class
        {
            self.position += character.len_utf8();
        }
    }

    /// Moves after white space: all of it at the end of the text, else all but the last character, which belongs to the
    /// next word, if there are several.
    fn skip_spaces(&mut self) {
        let mut last = self.position;
        let start = self.position;
        while let Some((character, CharClass::Space)) = self.peek() {
            last = self.position;
            self.position += character.len_utf8();
        }
        if self.position < self.text.len() && last > start {
            self.position = last;
        }
    }
}

/// Returns the length of `'s`, `'t`, `'re`, `'ve`, `'m`, `'ll` or `'d` at the start of a text.
fn contraction(text: &str, ignore_case: bool) -> Option<usize> {
    let mut characters = text.strip_prefix('\'')?.chars().map(|character| match character {
        'A'..='Z' if ignore_case => character.to_ascii_lowercase(),
        // Its upper case is S.
        '\u{17F}' if ignore_case => 's',
        _ => character,
    });
    match (characters.next()?, characters.next()) {
        ('s', _) if ignore_case => Some(1 + text[1..].chars().next()?.len_utf8()),
        ('s' | 't' | 'm' | 'd', _) => Some(2),
        ('r' | 'v', Some('e')) | ('l', Some('l')) => Some(3),
        _ => None,
    }
}

/// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
fn gpt2(cursor: &mut Cursor<'_>) {
    let Some((first, class)) = cursor.peek() else { return };
    if first == '\''
        && let Some(length) = contraction(cursor.text, false)
    {
        cursor.position = length;
    } else if class != CharClass::Space {
        cursor.skip(class);
    } else if first == ' ' {
        cursor.position = 1;
        match cursor.peek() {
            Some((_, CharClass::Space)) => {
                cursor.position = 0;
                cursor.skip_spaces();
            }
            Some((_, class)) => cursor.skip(class),
            None => {}
        }
    } else {
        cursor.skip_spaces();
    }
}

fn llama3(cursor: &mut Cursor<'_>, max_digits: usize) {
    let Some((first, class)) = cursor.peek() else { return };
    if first == '\''
        && let Some(length) = contraction(cursor.text, true)
    {
        cursor.position = length;
        return;
    }
    match class {
        CharClass::Letter => cursor.skip(class),
        CharClass::Number => {
            let digits = cursor
                .text
                .chars()
                .take_while(|&digit| cursor.classes.of(digit) == class)
                .take(max_digits);
            cursor.position = digits.map(char::len_utf8).sum();
        }
        CharClass::Other | CharClass::Space => {
            cursor.position = first.len_utf8();
            let next = cursor.peek().map(|(_, class)| class);
            if next == Some(CharClass::Letter) && !matches!(first, '\r' | '\n') {
                cursor.skip(CharClass::Letter);
            } else if class == CharClass::Other || (first == ' ' && next == Some(CharClass::Other)) {
                cursor.skip(CharClass::Other);
                let rest = &cursor.text[cursor.position..];
                cursor.position += rest.len() - rest.trim_start_matches(['\r', '\n']).len();
            } else {
                cursor.position = 0;
                lines_or_spaces(cursor);
            }
        }
    }
}

/// White space up to its last line break, or as GPT-2's where it has none.
fn lines_or_spaces(cursor: &mut Cursor<'_>) {
    cursor.skip(CharClass::Space);
    let spaces = &cursor.text[..cursor.position];
    match spaces.rfind(['\r', '\n']) {
        Some(line_break) => cursor.position = line_break + 1,
        None => {
            cursor.position = 0;
            cursor.skip_spaces();
        }
    }
}
