//! The kinds of tokenizers.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr, VariantArray};

use super::TokenizerError;
use super::settings::SETTINGS;

/// A kind of tokenizer, by its name in `--tokenizer-type`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, Display, IntoStaticStr, VariantArray,
)]
pub enum TokenizerKind {
    /// GPT-2's byte-level byte pair encoding: `vocab.json` and `merges.txt`.
    GPT2BPETokenizer,
    /// What a `tokenizer.json` says.
    HuggingFaceTokenizer,
    /// A `tokenizer.model` of SentencePiece.
    SentencePieceTokenizer,
    /// BERT's word pieces of lower case without accents: `vocab.txt`.
    BertWordPieceLowerCase,
    /// BERT's word pieces as written: `vocab.txt`.
    BertWordPieceCase,
    /// Numbers as text.
    NullTokenizer,
    /// Bytes as tokens.
    #[default]
    ByteTokenizer,
    /// Bytes as tokens, and tokens for the samples of BERT and T5.
    MaskedByteTokenizer,
}

impl TokenizerKind {
    /// All kinds.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the name in `--tokenizer-type`, which is Megatron-LM's where it has one.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the files that decide its tokens, of which a folder may have some.
    pub(super) fn files(self) -> &'static [&'static str] {
        match self {
            Self::GPT2BPETokenizer => &["vocab.json", "merges.txt", SETTINGS[0], SETTINGS[1], SETTINGS[2]],
            Self::HuggingFaceTokenizer => &["tokenizer.json", SETTINGS[0], SETTINGS[1], SETTINGS[2]],
            // What is next to it names pieces that it has.
            Self::SentencePieceTokenizer => &["tokenizer.model"],
            Self::BertWordPieceLowerCase | Self::BertWordPieceCase => {
                &["vocab.txt", SETTINGS[0], SETTINGS[1], SETTINGS[2]]
            }
            Self::NullTokenizer | Self::ByteTokenizer | Self::MaskedByteTokenizer => &[],
        }
    }

    /// Returns the names of all kinds, with a comma between two.
    pub fn names() -> String {
        Self::VARIANTS
            .iter()
            .map(|kind| kind.name())
            .collect::<Vec<_>>()
            .join(", ")
    }
}

impl FromStr for TokenizerKind {
    type Err = TokenizerError;

    fn from_str(name: &str) -> Result<Self, TokenizerError> {
        let found = Self::VARIANTS.iter().find(|kind| kind.name() == name);
        found.copied().ok_or_else(|| TokenizerError::UnknownKind {
            name: name.to_owned(),
            valid: Self::names(),
        })
    }
}
