//! Hugging Face's `tokenizer.json`.

use serde_json::{Value, json};

use super::byte_level::{ByteLevelEncoder, byte_of_character};
use super::roles::named_text;
use super::{Token, TokenRoles, Tokenizer, TokenizerError};

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
/// post-processor (begin and end of a sequence) adds to prompts, never to documents. Special tokens that a text spells
/// out become these tokens.
pub struct HuggingFaceTokenizer {
    inner: tokenizers::Tokenizer,
    byte_level: Option<ByteLevelEncoder>,
    end_of_document: Option<Token>,
    special: Vec<Token>,
    roles: TokenRoles,
    /// Whether each token continues a word; empty if the vocabulary is not one of word pieces.
    continues_word: Vec<bool>,
    vocabulary_size: usize,
}

impl HuggingFaceTokenizer {
    /// Returns the tokenizer of a `tokenizer.json`.
    ///
    /// Documents end with the `eos_token` of the first of `configs` (the contents of `tokenizer_config.json` and
    /// `special_tokens_map.json`) that names one, else with the token whose text says so (`<|endoftext|>`, `</s>`, …).
    /// So are the other roles: `cls_token` of a config, else `[CLS]`, `<s>`, …
    ///
    /// # Errors
    /// If a content is not what it should be, if the end of a document has no token, or if the vocabulary has neither a
    /// token for every text nor one for what is unknown.
    pub fn from_json(json: &[u8], configs: &[(&str, &[u8])]) -> Result<Self, TokenizerError> {
        let value = parse("tokenizer.json", json)?;
        let mut tokenizer = Self::new("tokenizer.json", json, &value)?;
        let mut named = TokenRoles::default();
        for (name, content) in configs {
            let config = parse(name, content)?;
            for (role, found) in named.named() {
                let (Some(text), None) = (named_text(&config, role), &found) else {
                    continue;
                };
                *found = tokenizer.inner.token_to_id(text);
                if role == "eos_token" && found.is_none() {
                    let reason = format!("its eos_token {text:?} is not a token of tokenizer.json");
                    return Err(TokenizerError::invalid(name, reason));
                }
            }
        }
        if let Some(end) = named.eos {
            tokenizer.set_end_of_document(end);
        }
        for ((_, role), (_, named)) in tokenizer.roles.named().into_iter().zip(named.named()) {
            *role = named.or(*role);
        }
        Ok(tokenizer)
    }

    /// Returns the tokenizer that a value describes as a `tokenizer.json` does. `file` is where its parts are from.
    pub(super) fn from_value(file: &str, value: &Value) -> Result<Self, TokenizerError> {
        let json = serde_json::to_vec(value).map_err(|error| TokenizerError::invalid(file, error))?;
        Self::new(file, &json, value)
    }

    fn new(file: &str, json: &[u8], value: &Value) -> Result<Self, TokenizerError> {
        let mut inner =
            tokenizers::Tokenizer::from_bytes(json).map_err(|error| TokenizerError::invalid(file, error))?;
        inner.with_padding(None);
        inner
            .with_truncation(None)
            .map_err(|error| TokenizerError::invalid(file, error))?;
        let largest = inner.get_vocab(true).into_values().max();
        let largest = largest.ok_or_else(|| TokenizerError::invalid(file, "the vocabulary is empty"))?;
        // What is wrong with unknown characters is wrong now, and not in the middle of a corpus.
        inner
            .encode_fast(UNKNOWN, false)
            .map_err(|error| TokenizerError::invalid(file, error))?;
        let added = inner.get_added_tokens_decoder();
        let mut special: Vec<Token> = added
            .iter()
            .filter(|(_, token)| token.special)
            .map(|(&number, _)| number)
            .collect();
        special.sort_unstable();
        let end_of_document = ENDS_OF_DOCUMENT.iter().find_map(|text| inner.token_to_id(text));
        Ok(Self {
            byte_level: ByteLevelEncoder::from_json(value, |text| inner.token_to_id(text)),
            roles: TokenRoles::by_texts(|text| inner.token_to_id(text)),
            continues_word: continuations(&inner, &value["model"], largest),
            inner,
            end_of_document,
            special,
            vocabulary_size: largest as usize + 1,
        })
    }

    /// Returns the token of a text that is exactly one token of the vocabulary.
    pub fn token(&self, text: &str) -> Option<Token> {
        self.inner.token_to_id(text)
    }

    pub(super) fn set_end_of_document(&mut self, token: Token) {
        self.end_of_document = Some(token);
    }

    fn encode_generic(
        &self,
        text: &str,
        with_post_processor: bool,
        tokens: &mut Vec<Token>,
    ) -> Result<(), TokenizerError> {
        let encoding = self
            .inner
            .encode_fast(text, with_post_processor)
            .map_err(|error| TokenizerError::NoToken {
                part: text.chars().take(40).collect(),
                reason: error.to_string(),
            })?;
        tokens.extend_from_slice(encoding.get_ids());
        Ok(())
    }
}

impl Tokenizer for HuggingFaceTokenizer {
    fn vocabulary_size(&self) -> usize {
        self.vocabulary_size
    }

    fn end_of_document(&self) -> Option<Token> {
        self.end_of_document
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
            None => self.encode_generic(text, false, tokens)?,
        }
        Ok(())
    }

    fn encode_prompt(&self, text: &str, tokens: &mut Vec<Token>) {
        self.encode_generic(text, true, tokens)
            .expect("unknown characters were tried when the vocabulary was read");
    }

    fn decode(&self, tokens: &[Token]) -> String {
        let dropped = |token: &Token| self.special.binary_search(token).is_ok();
        let texts: Vec<Token> = tokens.iter().copied().filter(|token| !dropped(token)).collect();
        // Decoders of the crate join texts; none refuses one.
        self.inner.decode(&texts, true).unwrap_or_default()
    }

    fn decode_with_special(&self, tokens: &[Token]) -> String {
        self.inner.decode(tokens, false).unwrap_or_default()
    }

    fn token_bytes(&self, token: Token) -> Vec<u8> {
        let name = || self.inner.id_to_token(token).unwrap_or_default();
        if self.special.binary_search(&token).is_ok() {
            return name().into();
        }
        // After itself, for what begins a text loses a space.
        let (one, two) = (self.decode(&[token]), self.decode(&[token, token]));
        let added = two.strip_prefix(&one).unwrap_or(&one);
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

fn parse(file: &str, content: &[u8]) -> Result<Value, TokenizerError> {
    serde_json::from_slice(content).map_err(|error| TokenizerError::invalid(file, error))
}
