//! Hugging Face's `tokenizer.json`.

use serde_json::Value;

use super::byte_level::ByteLevelEncoder;
use super::{Token, Tokenizer, TokenizerError};

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
    vocabulary_size: usize,
}

impl HuggingFaceTokenizer {
    /// Returns the tokenizer of a `tokenizer.json`.
    ///
    /// Documents end with the `eos_token` of the first of `configs` (the contents of `tokenizer_config.json` and
    /// `special_tokens_map.json`) that names one, else with the token whose text says so (`<|endoftext|>`, `</s>`, …).
    ///
    /// # Errors
    /// If a content is not what it should be, if the end of a document has no token, or if the vocabulary has neither a
    /// token for every text nor one for what is unknown.
    pub fn from_json(json: &[u8], configs: &[(&str, &[u8])]) -> Result<Self, TokenizerError> {
        let value = parse("tokenizer.json", json)?;
        let mut tokenizer = Self::new("tokenizer.json", json, &value)?;
        for (name, content) in configs {
            let config = parse(name, content)?;
            // A text, or an added token with its content.
            let end = [&config["eos_token"], &config["eos_token"]["content"]]
                .into_iter()
                .find_map(Value::as_str);
            let Some(end) = end else { continue };
            let token = tokenizer.inner.token_to_id(end);
            let token = token.ok_or_else(|| {
                TokenizerError::invalid(name, format!("its eos_token {end:?} is not a token of tokenizer.json"))
            })?;
            tokenizer.set_end_of_document(token);
            break;
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
            inner,
            end_of_document,
            special,
            vocabulary_size: largest as usize + 1,
        })
    }

    /// Returns whether documents are read by the fast encoder of byte-level vocabularies.
    pub fn is_byte_level(&self) -> bool {
        self.byte_level.is_some()
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
}

fn parse(file: &str, content: &[u8]) -> Result<Value, TokenizerError> {
    serde_json::from_slice(content).map_err(|error| TokenizerError::invalid(file, error))
}
