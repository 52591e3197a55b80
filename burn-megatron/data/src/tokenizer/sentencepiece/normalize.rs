//! SentencePiece's normalization: replacements of characters, and what becomes of spaces.

use aho_corasick::{AhoCorasick, Anchored, Input, MatchKind};

use super::model::NormalizerSpec;
use super::{SPACE, invalid};
use crate::tokenizer::TokenizerError;

/// Makes the text on which a model works.
pub(super) struct Normalizer {
    replacements: Replacements,
    /// Finds the pieces that are never changed.
    fixed: Option<AhoCorasick>,
    add_prefix: bool,
    space_after_words: bool,
    remove_extra_spaces: bool,
}

/// A part of a normalized text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// What the model cuts into pieces.
    Text(String),
    /// A piece that is never changed, by its place in the list.
    Fixed(usize),
}

impl Normalizer {
    /// Returns the normalizer of a model; `fixed` are the texts that are never changed.
    pub(super) fn new(spec: &NormalizerSpec, space_after_words: bool, fixed: &[&str]) -> Result<Self, TokenizerError> {
        if !spec.escape_whitespaces() {
            return Err(invalid(
                "spaces that are not written as U+2581 (escape_whitespaces) are not supported",
            ));
        }
        let finder = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .start_kind(aho_corasick::StartKind::Anchored)
            .build(fixed)
            .map_err(|error| invalid(format!("user-defined pieces: {error}")))?;
        Ok(Self {
            replacements: Replacements::new(spec.precompiled_charsmap())?,
            fixed: (!fixed.is_empty()).then_some(finder),
            add_prefix: spec.add_dummy_prefix(),
            space_after_words,
            remove_extra_spaces: spec.remove_extra_whitespaces(),
        })
    }

    /// Returns a text's parts in their order.
    pub(super) fn normalize(&self, mut text: &str) -> Vec<Part> {
        while self.remove_extra_spaces
            && let (Step::Text(" "), length @ 1..) = self.step(text)
        {
            text = &text[length..];
        }
        if text.is_empty() {
            return vec![];
        }
        let mut parts = Parts::default();
        if self.add_prefix && !self.space_after_words {
            parts.current.push(SPACE);
        }
        let mut after_space = self.remove_extra_spaces;
        while !text.is_empty() {
            let (step, length) = self.step(text);
            text = &text[length..];
            match step {
                Step::Fixed(piece) => {
                    parts.fixed(piece);
                    after_space = false;
                }
                Step::Text(new) => {
                    let new = if after_space { new.trim_start_matches(' ') } else { new };
                    parts.current.extend(
                        new.chars()
                            .map(|character| if character == ' ' { SPACE } else { character }),
                    );
                    if !new.is_empty() {
                        after_space = new.ends_with(' ');
                    }
                }
            }
            after_space &= self.remove_extra_spaces;
        }
        if self.remove_extra_spaces {
            parts.current.truncate(parts.current.trim_end_matches(SPACE).len());
        }
        if self.add_prefix && self.space_after_words {
            parts.current.push(SPACE);
        }
        parts.finish()
    }

    /// Returns what the start of a text becomes, and the length of that start.
    fn step<'a>(&'a self, text: &'a str) -> (Step<'a>, usize) {
        if let Some(fixed) = &self.fixed
            && let Some(found) = fixed.find(Input::new(text).anchored(Anchored::Yes))
        {
            return (Step::Fixed(found.pattern().as_usize()), found.end());
        }
        if let Some((replacement, length)) = self.replacements.longest(text) {
            return (Step::Text(replacement), length);
        }
        let length = text.chars().next().map_or(0, char::len_utf8);
        (Step::Text(&text[..length]), length)
    }
}

enum Step<'a> {
    Text(&'a str),
    Fixed(usize),
}

#[derive(Default)]
struct Parts {
    done: Vec<Part>,
    current: String,
}

impl Parts {
    fn fixed(&mut self, piece: usize) {
        if !self.current.is_empty() {
            self.done.push(Part::Text(std::mem::take(&mut self.current)));
        }
        self.done.push(Part::Fixed(piece));
    }

    fn finish(mut self) -> Vec<Part> {
        if !self.current.is_empty() {
            self.done.push(Part::Text(self.current));
        }
        self.done
    }
}

/// A double-array trie of texts, and what each becomes.
#[derive(Default)]
struct Replacements {
    units: Vec<u32>,
    texts: String,
}

impl Replacements {
    /// Reads a character map: the trie's size in bytes, the trie, and the replacements, each with a zero after it.
    fn new(map: &[u8]) -> Result<Self, TokenizerError> {
        if map.is_empty() {
            return Ok(Self::default());
        }
        let wrong = || {
            invalid(format!(
                "a character map of {} bytes whose trie is not in it",
                map.len()
            ))
        };
        let (size, rest) = map.split_first_chunk::<4>().ok_or_else(wrong)?;
        let size = u32::from_le_bytes(*size) as usize;
        let (trie, texts) = rest
            .split_at_checked(size)
            .filter(|_| size.is_multiple_of(4))
            .ok_or_else(wrong)?;
        let units = trie
            .chunks_exact(4)
            .map(|unit| u32::from_le_bytes([unit[0], unit[1], unit[2], unit[3]]));
        let texts = std::str::from_utf8(texts).map_err(|error| invalid(format!("replacements: {error}")))?;
        Ok(Self {
            units: units.collect(),
            texts: texts.to_owned(),
        })
    }

    /// Returns what the longest text of the map at the start of `text` becomes, and its length.
    fn longest(&self, text: &str) -> Option<(&str, usize)> {
        let offset = |unit: u32| (unit >> 10) << ((unit & 0x200) >> 6);
        let mut node = offset(*self.units.first()?);
        let mut found = None;
        for (index, &byte) in text.as_bytes().iter().enumerate() {
            node ^= u32::from(byte);
            let Some(&unit) = self.units.get(node as usize) else {
                break;
            };
            if unit & 0x8000_00FF != u32::from(byte) {
                break;
            }
            node ^= offset(unit);
            if unit & 0x100 != 0 {
                let value = self.units.get(node as usize).map(|value| value & 0x7FFF_FFFF);
                found = value.map(|value| (value as usize, index + 1)).or(found);
            }
        }
        let (start, length) = found.filter(|&(_, length)| text.is_char_boundary(length))?;
        let replacement = self.texts.get(start..)?;
        Some((replacement.split('\0').next()?, length))
    }
}
