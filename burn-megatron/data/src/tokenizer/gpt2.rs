//! GPT-2's vocabulary: `vocab.json` and `merges.txt`.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::hugging_face::{HuggingFaceTokenizer, special_token, tokenizer_by_inner};
use super::settings::TokenizerSettings;
use super::{Token, TokenPiece, TokenRoles, TokenizerError};

/// GPT-2's byte-level byte pair encoding.
///
/// `<|endoftext|>` ends a document; where a text spells it out, it becomes that token, as in Hugging Face's tokenizers.
pub struct GPT2BPETokenizer(HuggingFaceTokenizer);

impl GPT2BPETokenizer {
    /// Text of the token that ends a document.
    pub const END_OF_DOCUMENT: &'static str = "<|endoftext|>";

    /// Returns the tokenizer of a vocabulary and its merges.
    ///
    /// # Errors
    /// If one of them does not have its form, if a merge is of tokens that the vocabulary does not have, or if the
    /// vocabulary has no `<|endoftext|>`.
    pub fn new(vocabulary: &[u8], merges: &[u8]) -> Result<Self, TokenizerError> {
        Self::with_settings(vocabulary, merges, &TokenizerSettings::default()).map(Self)
    }

    /// Returns that of a folder that says more of its vocabulary: where it names an end of a document, that is it.
    pub(super) fn with_settings(
        vocabulary: &[u8],
        merges: &[u8],
        settings: &TokenizerSettings,
    ) -> Result<HuggingFaceTokenizer, TokenizerError> {
        let vocabulary: HashMap<String, Token> = serde_json::from_slice(vocabulary).map_err(|error| {
            TokenizerError::invalid("vocab.json", format!("not a map of texts to numbers: {error}"))
        })?;
        let named = settings.role("eos_token");
        let end = named.map_or(Self::END_OF_DOCUMENT, |(text, _)| text).to_owned();
        if named.is_none() && !vocabulary.contains_key(&end) {
            let reason = format!("no token {end:?}, which ends documents");
            return Err(TokenizerError::invalid("vocab.json", reason));
        }
        let merges = parse_merges(merges, &vocabulary)?;
        let description = description(vocabulary, merges, &end);
        let mut tokenizer = HuggingFaceTokenizer::from_value("vocab.json", description, settings)?;
        if let Some(end) = tokenizer.token(&end) {
            tokenizer.set_end_of_document(end);
        }
        Ok(tokenizer)
    }
}

/// Returns the pairs of a `merges.txt`, which is a version line that may be missing and a pair a line.
fn parse_merges(merges: &[u8], vocabulary: &HashMap<String, Token>) -> Result<Vec<Value>, TokenizerError> {
    let text = std::str::from_utf8(merges).map_err(|error| TokenizerError::invalid("merges.txt", error))?;
    let mut pairs = vec![];
    for (index, line) in text.split('\n').enumerate() {
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.is_empty() || line.starts_with("#version") {
            continue;
        }
        let wrong = |reason: String| TokenizerError::InvalidLine {
            file: "merges.txt".to_owned(),
            line: index + 1,
            reason,
        };
        let Some((left, right)) = line.split_once(' ').filter(|(_, right)| !right.contains(' ')) else {
            return Err(wrong(format!("{line:?} is not two tokens with a space between them")));
        };
        for text in [left, right, &format!("{left}{right}")] {
            if !vocabulary.contains_key(text) {
                return Err(wrong(format!("{text:?} of this merge is not in vocab.json")));
            }
        }
        pairs.push(json!([left, right]));
    }
    Ok(pairs)
}

/// Returns the `tokenizer.json` of a byte-level vocabulary whose documents end with `end`, if that is a token.
pub(super) fn description(vocabulary: HashMap<String, Token>, merges: Vec<Value>, end: &str) -> Value {
    let added: Vec<Value> = (vocabulary.get(end))
        .map(|&token| special_token(token as usize, end))
        .into_iter()
        .collect();
    let byte_level = json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true });
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": added,
        "normalizer": null, "pre_tokenizer": byte_level, "post_processor": null, "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocabulary, "merges": merges,
        },
    })
}

tokenizer_by_inner!(GPT2BPETokenizer);
