//! Hugging Face's `tokenizer.json`.

use std::collections::HashSet;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokenizers::{AddedToken, Encoding, NormalizerWrapper, PreTokenizerWrapper};

use super::byte_level::{ByteLevelEncoder, byte_of_character};
use super::settings::{Changed, TokenizerSettings, parse};
use super::{Token, TokenPiece, TokenRoles, Tokenizer, TokenizerError};

/// Many times the largest vocabularies, whose numbers have few gaps.
const MAX_TOKENS: Token = 1 << 24;

/// Texts of tokens that end a document, where no file names one. The first that a vocabulary has counts.
const ENDS_OF_DOCUMENT: [&str; 7] = [
    "<|endoftext|>",
    "<|end_of_text|>",
    "</s>",
    "<eos>",
    "<|end▁of▁sentence|>",
    "[EOS]",
    "[SEP]",
];

/// A text without a token in nearly every vocabulary: a private character, an unassigned one, and a control character.
const UNKNOWN: &str = "\u{10FFFD}\u{E000}\u{378}\u{1}";

/// What a `tokenizer.json` says, by the `tokenizers` crate; byte-level vocabularies by an encoder that gives the same
/// tokens many times faster.
///
/// Truncation and padding that the file asks for are left out: a document keeps all its tokens. The file's
/// post-processor (begin and end of a sequence) adds to prompts, never to documents; what a prompt begins with already
/// is not added again. Special tokens that a text spells out become these tokens.
pub struct HuggingFaceTokenizer {
    inner: tokenizers::Tokenizer,
    byte_level: Option<ByteLevelEncoder>,
    end_of_document: Option<Token>,
    ends_of_text: Option<Vec<Token>>,
    /// The tokens of a prompt before and after its text.
    around: [Vec<Token>; 2],
    special: Vec<Token>,
    roles: TokenRoles,
    /// True if tokens as `<0xFF>` are bytes.
    has_bytes: bool,
    /// A token with a text, before others.
    context: Option<Token>,
    /// Whether each token continues a word; empty if the vocabulary is not one of word pieces.
    continues_word: Vec<bool>,
    vocabulary_size: usize,
}

impl HuggingFaceTokenizer {
    /// Returns the tokenizer of a `tokenizer.json`.
    ///
    /// `configs` are the contents of `tokenizer_config.json`, `special_tokens_map.json` and `added_tokens.json`, read
    /// as transformers reads them: they add tokens, make some special, and say what begins and ends a prompt.
    /// Documents end with the `eos_token` that they name, else with the token whose text says so (`<|endoftext|>`,
    /// `</s>`, …). So are the other roles: `cls_token`, else `[CLS]`, `<s>`, …
    ///
    /// # Errors
    /// If a content is not what it should be, if the end of a document has no token, or if the vocabulary has neither a
    /// token for every text nor one for what is unknown.
    pub fn from_json(json: &[u8], configs: &[(&str, &[u8])]) -> Result<Self, TokenizerError> {
        Self::with_settings(json, &TokenizerSettings::parse(configs)?)
    }

    pub(super) fn with_settings(json: &[u8], settings: &TokenizerSettings) -> Result<Self, TokenizerError> {
        let file = "tokenizer.json";
        Self::new(file, json, parse(file, json)?, settings)
    }

    /// Returns the tokenizer that a value describes as a `tokenizer.json` does. `file` is where its parts are from.
    pub(super) fn from_value(file: &str, value: Value, settings: &TokenizerSettings) -> Result<Self, TokenizerError> {
        let json = serde_json::to_vec(&value).map_err(|error| TokenizerError::invalid(file, error))?;
        Self::new(file, &json, value, settings)
    }

    fn new(file: &str, json: &[u8], mut value: Value, settings: &TokenizerSettings) -> Result<Self, TokenizerError> {
        let wrong = |error: tokenizers::Error| TokenizerError::invalid(file, error);
        let mut inner = tokenizers::Tokenizer::from_bytes(json).map_err(wrong)?;
        inner.with_padding(None);
        inner.with_truncation(None).map_err(wrong)?;
        let changed = settings.apply(&mut value, |text| inner.token_to_id(text))?;
        change(&mut inner, &value, &changed).map_err(wrong)?;
        settings.check_numbers(|text| inner.token_to_id(text))?;
        let largest = inner.get_vocab(true).into_values().max();
        let largest = largest.ok_or_else(|| TokenizerError::invalid(file, "the vocabulary is empty"))?;
        if largest >= MAX_TOKENS {
            let reason = format!("a token has the number {largest}, which must be below {MAX_TOKENS}");
            return Err(TokenizerError::invalid(file, reason));
        }
        // What is wrong with unknown characters is wrong now, and not in the middle of a corpus.
        inner.encode_fast(UNKNOWN, false).map_err(wrong)?;
        let added = inner.get_added_tokens_decoder();
        let texts: HashSet<&str> = added
            .values()
            .filter(|token| token.special)
            .map(|token| &*token.content)
            .collect();
        // By their texts, for a vocabulary may have one twice: unknown characters then have another number.
        let is_special = |&token: &Token| inner.id_to_token(token).is_some_and(|text| texts.contains(&*text));
        let special: Vec<Token> = (0..=largest).filter(is_special).collect();
        let mut roles = TokenRoles::by_texts(|text| inner.token_to_id(text));
        settings.set_roles(&mut roles, |text| inner.token_to_id(text))?;
        let end_of_document = match settings.role("eos_token") {
            Some((text, _)) => inner.token_to_id(text),
            None => ENDS_OF_DOCUMENT.iter().find_map(|text| inner.token_to_id(text)),
        };
        let mut tokenizer = Self {
            byte_level: ByteLevelEncoder::from_json(&value, |text| inner.token_to_id(text)),
            around: around(&inner).map_err(wrong)?,
            continues_word: continuations(&inner, &value["model"], largest),
            has_bytes: has_bytes(&value["decoder"]),
            ends_of_text: None,
            end_of_document,
            special,
            roles,
            context: None,
            vocabulary_size: largest as usize + 1,
            inner,
        };
        let roles = [
            ("add_bos_token", settings.add_bos, tokenizer.roles.bos),
            ("add_eos_token", settings.add_eos, tokenizer.roles.eos),
        ];
        for ((key, adds, token), around) in roles.into_iter().zip(&mut tokenizer.around) {
            match (adds, token) {
                (Some(true), Some(token)) if !around.contains(&token) => around.push(token),
                (Some(true), None) => {
                    let reason = format!("{key} is true, and the vocabulary has no such token");
                    return Err(TokenizerError::invalid("tokenizer_config.json", reason));
                }
                (Some(false), Some(token)) => around.retain(|other| *other != token),
                _ => {}
            }
        }
        let has_text = |&token: &Token| {
            tokenizer.piece(token) == TokenPiece::Text && !matches!(&*tokenizer.decode(&[token]), "" | "\u{FFFD}")
        };
        tokenizer.context = (0..=largest).find(has_text);
        Ok(tokenizer)
    }

    /// Returns the token of a text that is exactly one token of the vocabulary.
    pub fn token(&self, text: &str) -> Option<Token> {
        self.inner.token_to_id(text)
    }

    pub(super) fn set_end_of_document(&mut self, token: Token) {
        self.end_of_document = Some(token);
    }

    pub(super) fn with_ends_of_text(self, ends_of_text: Option<Vec<Token>>) -> Self {
        Self { ends_of_text, ..self }
    }

    fn is_special(&self, token: Token) -> bool {
        self.special.binary_search(&token).is_ok()
    }

    /// Returns the text of the tokens that `keeps` takes.
    fn join(&self, tokens: &[Token], keeps: impl Fn(Token) -> bool) -> String {
        let kept: Vec<Token> = tokens.iter().copied().filter(|&token| keeps(token)).collect();
        // Decoders of the crate join texts; none refuses one, and some must have one.
        if kept.is_empty() {
            return String::new();
        }
        self.inner.decode(&kept, false).unwrap_or_default()
    }
}

impl Tokenizer for HuggingFaceTokenizer {
    fn vocabulary_size(&self) -> usize {
        self.vocabulary_size
    }

    fn end_of_document(&self) -> Option<Token> {
        self.end_of_document
    }

    fn ends_of_text(&self) -> Vec<Token> {
        let ends = self.ends_of_text.clone();
        ends.unwrap_or_else(|| self.end_of_document.into_iter().collect())
    }

    fn special_tokens(&self) -> &[Token] {
        &self.special
    }

    fn token_roles(&self) -> TokenRoles {
        self.roles.clone()
    }

    fn continues_word(&self, _: Option<Token>, token: Token) -> bool {
        self.continues_word.get(token as usize).copied().unwrap_or_default()
    }

    fn encode(&self, text: &str, tokens: &mut Vec<Token>) {
        self.try_encode(text, tokens)
            .expect("unknown characters were tried when the vocabulary was read");
    }

    fn try_encode(&self, text: &str, tokens: &mut Vec<Token>) -> Result<(), TokenizerError> {
        match &self.byte_level {
            Some(encoder) => encoder.encode(text, tokens),
            None => {
                let encoding = self.inner.encode_fast(text, false);
                let encoding = encoding.map_err(|error| TokenizerError::NoToken {
                    part: text.chars().take(40).collect(),
                    reason: error.to_string(),
                })?;
                tokens.extend_from_slice(encoding.get_ids());
            }
        }
        Ok(())
    }

    fn encode_prompt(&self, text: &str, tokens: &mut Vec<Token>) {
        let [before, after] = &self.around;
        let mut of_text = vec![];
        self.encode(text, &mut of_text);
        if !of_text.starts_with(before) {
            tokens.extend_from_slice(before);
        }
        tokens.append(&mut of_text);
        tokens.extend_from_slice(after);
    }

    fn decode(&self, tokens: &[Token]) -> String {
        self.join(tokens, |token| self.piece(token) != TokenPiece::Nothing)
    }

    fn decode_with_special(&self, tokens: &[Token]) -> String {
        self.join(tokens, |token| self.inner.id_to_token(token).is_some())
    }

    fn piece(&self, token: Token) -> TokenPiece {
        match self.inner.id_to_token(token) {
            None => TokenPiece::Nothing,
            Some(_) if self.is_special(token) => TokenPiece::Nothing,
            Some(text) if self.has_bytes && is_byte(&text) => TokenPiece::Byte,
            Some(_) => TokenPiece::Text,
        }
    }

    fn token_bytes(&self, token: Token) -> Vec<u8> {
        let name = || self.inner.id_to_token(token).unwrap_or_default();
        if self.is_special(token) {
            return name().into();
        }
        // After another token, for what begins a text loses a space.
        let within = self.context.and_then(|context| {
            let text = self.decode(&[context, token]);
            text.strip_prefix(&self.decode(&[context])).map(str::to_owned)
        });
        let added = within.unwrap_or_else(|| self.decode(&[token]));
        if added.contains(char::REPLACEMENT_CHARACTER) {
            return bytes_of_name(&name()).unwrap_or_else(|| added.into());
        }
        added.into()
    }
}

/// Returns the bytes that a vocabulary writes as `<0xE4>`, or by the characters of byte-level ones.
fn bytes_of_name(name: &str) -> Option<Vec<u8>> {
    let digits = name.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
    if let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
        return Some(vec![byte]);
    }
    name.chars().map(byte_of_character).collect()
}

/// Implements [`Tokenizer`] for a kind that is a [`HuggingFaceTokenizer`] inside.
macro_rules! tokenizer_by_inner {
    ($name:ty { $($method:ident($($argument:ident: $kind:ty),*) -> $output:ty;)* }) => {
        impl $crate::tokenizer::Tokenizer for $name {
            $(fn $method(&self, $($argument: $kind),*) -> $output {
                self.0.$method($($argument),*)
            })*
        }
    };
    ($name:ty) => {
        $crate::tokenizer::hugging_face::tokenizer_by_inner!($name {
            vocabulary_size() -> usize;
            end_of_document() -> Option<Token>;
            ends_of_text() -> Vec<Token>;
            special_tokens() -> &[Token];
            token_roles() -> TokenRoles;
            continues_word(previous: Option<Token>, token: Token) -> bool;
            encode(text: &str, tokens: &mut Vec<Token>) -> ();
            try_encode(text: &str, tokens: &mut Vec<Token>) -> Result<(), TokenizerError>;
            encode_prompt(text: &str, tokens: &mut Vec<Token>) -> ();
            decode(tokens: &[Token]) -> String;
            decode_with_special(tokens: &[Token]) -> String;
            piece(token: Token) -> TokenPiece;
            token_bytes(token: Token) -> Vec<u8>;
        });
    };
}
pub(super) use tokenizer_by_inner;

/// Returns a special token as a `tokenizer.json` lists it.
pub(super) fn special_token(number: usize, text: &str) -> Value {
    json!({
        "id": number, "content": text, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
        "special": true,
    })
}

/// Returns which of the tokens up to `largest` continue a word: in a vocabulary of word pieces, those with its prefix.
fn continuations(inner: &tokenizers::Tokenizer, model: &Value, largest: Token) -> Vec<bool> {
    if model["type"] != "WordPiece" {
        return vec![];
    }
    let prefix = model["continuing_subword_prefix"].as_str().unwrap_or("##");
    let continues = |token| inner.id_to_token(token).is_some_and(|text| text.starts_with(prefix));
    (0..=largest).map(continues).collect()
}

/// Changes a tokenizer as its description was changed: a description that was not is read as it was written.
fn change(inner: &mut tokenizers::Tokenizer, value: &Value, changed: &Changed) -> Result<(), tokenizers::Error> {
    fn read<T: DeserializeOwned>(value: &Value) -> Result<T, tokenizers::Error> {
        Ok(T::deserialize(value)?)
    }
    if changed.normalizer {
        inner.with_normalizer(Some(read::<NormalizerWrapper>(&value["normalizer"])?))?;
    }
    if changed.pre_tokenizer {
        inner.with_pre_tokenizer(Some(read::<PreTokenizerWrapper>(&value["pre_tokenizer"])?));
    }
    if changed.added_tokens {
        inner.add_tokens(read::<Vec<AddedToken>>(&value["added_tokens"])?)?;
    }
    Ok(())
}

/// Returns what the post-processor puts before and after a text.
fn around(inner: &tokenizers::Tokenizer) -> Result<[Vec<Token>; 2], tokenizers::Error> {
    let text = tokenizers::Token::new(Token::MAX, "a".to_owned(), (0, 1));
    let whole = inner.post_process(Encoding::from_tokens(vec![text], 0), None, true)?;
    match whole.get_ids().split(|&token| token == Token::MAX).collect::<Vec<_>>()[..] {
        [before, after] => Ok([before.to_vec(), after.to_vec()]),
        _ => Err("its post_processor does not write a text once".into()),
    }
}

/// Returns whether a decoder reads tokens as `<0xFF>` as bytes.
fn has_bytes(decoder: &Value) -> bool {
    let parts = decoder["decoders"].as_array();
    decoder["type"] == "ByteFallback" || parts.is_some_and(|parts| parts.iter().any(has_bytes))
}

/// Returns whether the crate's decoder of bytes reads a token as one.
fn is_byte(text: &str) -> bool {
    let digits = text.strip_prefix("<0x").and_then(|text| text.strip_suffix('>'));
    digits.is_some_and(|digits| digits.len() == 2 && u8::from_str_radix(digits, 16).is_ok())
}
