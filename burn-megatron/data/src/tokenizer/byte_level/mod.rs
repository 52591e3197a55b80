//! Byte-level byte pair encoding: the tokens that the `tokenizers` crate gives, many times faster.
//!
//! Text is cut into words by a pattern, the bytes of a word are its first tokens, and pairs of neighbours are merged in
//! the order of their ranks. Short words are looked up in a cache.

mod cache;
mod classes;
pub(super) mod merge;
mod split;

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use aho_corasick::{AhoCorasick, MatchKind};
use parking_lot::Mutex;
use serde_json::Value;

use self::cache::WordCache;
use self::classes::CharClasses;
use self::merge::{Links, Merges};
use self::split::Pattern;
use super::Token;

/// Returns the character by which vocabularies write a byte.
pub(super) fn character_of_byte(byte: u8) -> char {
    // Bytes that print stand for themselves, the others for the characters from U+0100 on, in their order.
    let character = match byte {
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => u32::from(byte),
        0..=0x20 => 0x100 + u32::from(byte),
        0x7F..=0xA0 => 0x100 + 0x21 + u32::from(byte - 0x7F),
        0xAD => 0x100 + 0x21 + 0x22,
    };
    char::from_u32(character).expect("below the surrogates")
}

/// Returns the byte that vocabularies write by a character, if there is one.
pub(super) fn byte_of_character(character: char) -> Option<u8> {
    (0..=u8::MAX).find(|&byte| character_of_byte(byte) == character)
}

/// Calls `each` with the words of a text, as GPT-2 cuts it.
pub(super) fn gpt2_words(mut text: &str, mut each: impl FnMut(&str)) {
    let classes = CharClasses::new();
    while !text.is_empty() {
        let (word, rest) = text.split_at(Pattern::Gpt2.first_word(text, classes));
        each(word);
        text = rest;
    }
}

/// Reads text as tokens of a byte-level vocabulary.
pub(super) struct ByteLevelEncoder {
    pattern: Pattern,
    classes: CharClasses,
    /// The token of each byte.
    bytes: [Token; 256],
    merges: Merges,
    /// Tokens of whole words, if these are taken before any merge.
    words: Option<HashMap<Box<[u8]>, Token>>,
    /// Tokens that are found in the text as they are, and their numbers.
    added: Option<(AhoCorasick, Vec<Token>)>,
    scratch: Mutex<Vec<Scratch>>,
}

/// What encoding a document needs, for one thread at a time.
#[derive(Default)]
struct Scratch {
    cache: WordCache,
    word: Vec<Token>,
    links: Links,
}

impl ByteLevelEncoder {
    /// Returns the encoder of a `tokenizer.json`, or `None` if it asks for something that is not built here.
    ///
    /// `number_of` says which token an added token is.
    pub(super) fn from_json(json: &Value, number_of: impl Fn(&str) -> Option<Token>) -> Option<Self> {
        if !json["normalizer"].is_null() {
            return None;
        }
        let model = &json["model"];
        let plain = [
            "dropout",
            "unk_token",
            "continuing_subword_prefix",
            "end_of_word_suffix",
        ];
        let is_plain = plain.iter().all(|&name| model[name].is_null() || model[name] == "");
        let is_bpe = model["type"] == "BPE" || (model["type"].is_null() && model["merges"].is_array());
        if !is_bpe || !is_plain {
            return None;
        }
        let vocabulary = vocabulary(&model["vocab"])?;
        let mut bytes = [0; 256];
        for (byte, token) in (0..=u8::MAX).zip(&mut bytes) {
            *token = *vocabulary.get(character_of_byte(byte).encode_utf8(&mut [0; 4]) as &str)?;
        }
        let whole_words = model["ignore_merges"] == true;
        Some(Self {
            pattern: pattern(&json["pre_tokenizer"])?,
            classes: CharClasses::new(),
            bytes,
            merges: merges(&model["merges"], &vocabulary)?,
            words: if whole_words { Some(words(&vocabulary)) } else { None },
            added: added_tokens(&json["added_tokens"], number_of)?,
            scratch: Mutex::new(vec![]),
        })
    }

    /// Appends the tokens of a text.
    pub(super) fn encode(&self, text: &str, tokens: &mut Vec<Token>) {
        // A panic cannot leave scratch memory half changed: it is taken out while it is used.
        let taken = self.scratch.lock().pop();
        let mut scratch = taken.unwrap_or_default();
        let mut start = 0;
        if let Some((finder, numbers)) = &self.added {
            for found in finder.find_iter(text) {
                self.encode_words(&text[start..found.start()], tokens, &mut scratch);
                tokens.push(numbers[found.pattern().as_usize()]);
                start = found.end();
            }
        }
        self.encode_words(&text[start..], tokens, &mut scratch);
        self.scratch.lock().push(scratch);
    }

    fn encode_words(&self, mut text: &str, tokens: &mut Vec<Token>, scratch: &mut Scratch) {
        while !text.is_empty() {
            let (word, rest) = text.split_at(self.pattern.first_word(text, self.classes));
            self.encode_word(word.as_bytes(), tokens, scratch);
            text = rest;
        }
    }

    fn encode_word(&self, word: &[u8], tokens: &mut Vec<Token>, scratch: &mut Scratch) {
        let place = scratch.cache.place(word);
        if scratch.cache.append(&place, word, tokens) {
            return;
        }
        let Scratch {
            cache,
            word: merged,
            links,
        } = scratch;
        merged.clear();
        match self.words.as_ref().and_then(|words| words.get(word)) {
            Some(&token) => merged.push(token),
            None => {
                merged.extend(word.iter().map(|&byte| self.bytes[usize::from(byte)]));
                self.merges.apply(merged, links);
            }
        }
        cache.insert(&place, word, merged);
        tokens.extend_from_slice(merged);
    }
}

fn vocabulary(json: &Value) -> Option<HashMap<&str, Token>> {
    let number = |token: &Value| token.as_u64().and_then(|token| Token::try_from(token).ok());
    json.as_object()?
        .iter()
        .map(|(text, token)| Some((text.as_str(), number(token)?)))
        .collect()
}

/// Returns the words in bytes. What is no text of this alphabet can be no word.
fn words(vocabulary: &HashMap<&str, Token>) -> HashMap<Box<[u8]>, Token> {
    let bytes: HashMap<char, u8> = (0..=u8::MAX).map(|byte| (character_of_byte(byte), byte)).collect();
    let word = |text: &str| {
        text.chars()
            .map(|character| bytes.get(&character).copied())
            .collect::<Option<_>>()
    };
    vocabulary
        .iter()
        .filter_map(|(text, &token)| Some((word(text)?, token)))
        .collect()
}

fn merges(json: &Value, vocabulary: &HashMap<&str, Token>) -> Option<Merges> {
    let mut merges = vec![];
    let mut joined = String::new();
    for merge in json.as_array()? {
        let (left, right) = match merge {
            Value::String(pair) => pair.split_once(' ')?,
            Value::Array(pair) => match pair.as_slice() {
                [Value::String(left), Value::String(right)] => (left.as_str(), right.as_str()),
                _ => return None,
            },
            _ => return None,
        };
        joined.clear();
        joined.push_str(left);
        joined.push_str(right);
        merges.push((
            *vocabulary.get(left)?,
            *vocabulary.get(right)?,
            *vocabulary.get(joined.as_str())?,
        ));
    }
    Some(Merges::new(&merges))
}

fn pattern(json: &Value) -> Option<Pattern> {
    let byte_level = |json: &Value, use_regex: bool| {
        // Both are true where they are left out.
        let setting = |name: &str| json[name].as_bool().unwrap_or(true);
        json["type"] == "ByteLevel" && !setting("add_prefix_space") && setting("use_regex") == use_regex
    };
    if byte_level(json, true) {
        return Some(Pattern::Gpt2);
    }
    let parts = json["pretokenizers"]
        .as_array()
        .filter(|_| json["type"] == "Sequence")?;
    let [split, bytes] = parts.as_slice() else { return None };
    let isolates = split["type"] == "Split" && split["behavior"] == "Isolated" && split["invert"] != true;
    if !isolates || !byte_level(bytes, false) {
        return None;
    }
    Pattern::of(split["pattern"]["Regex"].as_str()?)
}

/// Returns what finds the added tokens, `Some(None)` if there are none.
#[expect(clippy::option_option, reason = "not built here, none, some")]
fn added_tokens(json: &Value, number_of: impl Fn(&str) -> Option<Token>) -> Option<Option<(AhoCorasick, Vec<Token>)>> {
    let Some(list) = json.as_array().filter(|list| !list.is_empty()) else {
        return Some(None);
    };
    let mut texts = vec![];
    let mut numbers = vec![];
    for token in list {
        let is_plain = ["single_word", "lstrip", "rstrip"]
            .iter()
            .all(|&name| token[name] != true);
        // Those that are found before and after normalization are found in two passes.
        if !is_plain || token["normalized"] != list[0]["normalized"] {
            return None;
        }
        let text = token["content"].as_str().filter(|text| !text.is_empty())?;
        texts.push(text);
        numbers.push(number_of(text)?);
    }
    let finder = AhoCorasick::builder()
        .match_kind(MatchKind::LeftmostLongest)
        .build(texts)
        .ok()?;
    Some(Some((finder, numbers)))
}
