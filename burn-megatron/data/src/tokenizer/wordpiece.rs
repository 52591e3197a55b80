//! BERT's word pieces: `vocab.txt`.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::hugging_face::{HuggingFaceTokenizer, special_token, tokenizer_by_inner};
use super::settings::TokenizerSettings;
use super::{Token, TokenPiece, TokenRoles, TokenizerError};

/// Word pieces, longest first, as BERT reads them.
///
/// Documents end with `[EOS]` if the vocabulary has it, else with `[SEP]`. A prompt is `[CLS]`, its text and `[SEP]`.
pub struct BertWordPieceTokenizer(HuggingFaceTokenizer);

/// The tokens that BERT needs, in the order of a trained vocabulary.
pub(super) const SPECIAL: [&str; 5] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];

impl BertWordPieceTokenizer {
    /// Returns the tokenizer of a vocabulary that has a token a line: of lower case without accents.
    ///
    /// # Errors
    /// If the vocabulary is not UTF-8, or lacks `[UNK]`, `[CLS]` or `[SEP]`.
    pub fn lower_case(vocabulary: &[u8]) -> Result<Self, TokenizerError> {
        Self::with_settings(vocabulary, true, &TokenizerSettings::default()).map(Self)
    }

    /// Returns the tokenizer of a vocabulary that has a token a line: of text as it is written.
    ///
    /// # Errors
    /// Those of [`Self::lower_case`].
    pub fn cased(vocabulary: &[u8]) -> Result<Self, TokenizerError> {
        Self::with_settings(vocabulary, false, &TokenizerSettings::default()).map(Self)
    }

    /// Returns that of a folder that says more of its vocabulary.
    pub(super) fn with_settings(
        vocabulary: &[u8],
        lower_case: bool,
        settings: &TokenizerSettings,
    ) -> Result<HuggingFaceTokenizer, TokenizerError> {
        let text = std::str::from_utf8(vocabulary).map_err(|error| TokenizerError::invalid("vocab.txt", error))?;
        // A token that is there twice has its last number, as in Hugging Face's tokenizers.
        let lines = text.strip_suffix('\n').unwrap_or(text).split('\n');
        let vocabulary: HashMap<String, Token> = lines
            .zip(0..)
            .map(|(line, number)| (line.trim_end().to_owned(), number))
            .collect();
        for needed in ["[UNK]", "[CLS]", "[SEP]"] {
            if !vocabulary.contains_key(needed) {
                return Err(TokenizerError::invalid("vocab.txt", format!("no line {needed:?}")));
            }
        }
        let end = vocabulary.get("[EOS]").unwrap_or(&vocabulary["[SEP]"]);
        let end = *end;
        let description = description(vocabulary, lower_case);
        let mut tokenizer = HuggingFaceTokenizer::from_value("vocab.txt", description, settings)?;
        if settings.role("eos_token").is_none() {
            tokenizer.set_end_of_document(end);
        }
        Ok(tokenizer)
    }
}

/// Returns BERT's normalizer of texts, as a `tokenizer.json` has it.
pub(super) fn normalizer(lower_case: bool) -> Value {
    json!({
        "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null,
        "lowercase": lower_case,
    })
}

/// Returns what cuts normalized texts into words, as a `tokenizer.json` has it.
pub(super) fn pre_tokenizer() -> Value {
    json!({ "type": "BertPreTokenizer" })
}

/// Returns the `tokenizer.json` of a vocabulary of word pieces.
pub(super) fn description(vocabulary: HashMap<String, Token>, lower_case: bool) -> Value {
    let added: Vec<Value> = SPECIAL
        .iter()
        .filter_map(|text| Some(special_token(*vocabulary.get(*text)? as usize, text)))
        .collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": normalizer(lower_case), "pre_tokenizer": pre_tokenizer(),
        "post_processor": {
            "type": "BertProcessing", "sep": ["[SEP]", vocabulary["[SEP]"]], "cls": ["[CLS]", vocabulary["[CLS]"]],
        },
        "decoder": { "type": "WordPiece", "prefix": "##", "cleanup": true },
        "model": {
            "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": vocabulary,
        },
    })
}

tokenizer_by_inner!(BertWordPieceTokenizer);
