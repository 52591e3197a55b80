//! The kinds of tokenizers.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::TokenizerError;

/// A kind of tokenizer, by its name in `--tokenizer-type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
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
    pub const ALL: [Self; 8] = [
        Self::GPT2BPETokenizer,
        Self::HuggingFaceTokenizer,
        Self::SentencePieceTokenizer,
        Self::BertWordPieceLowerCase,
        Self::BertWordPieceCase,
        Self::NullTokenizer,
        Self::ByteTokenizer,
        Self::MaskedByteTokenizer,
    ];

    /// Returns the name in `--tokenizer-type`, which is Megatron-LM's where it has one.
    pub fn name(self) -> &'static str {
        match self {
            Self::GPT2BPETokenizer => "GPT2BPETokenizer",
            Self::HuggingFaceTokenizer => "HuggingFaceTokenizer",
            Self::SentencePieceTokenizer => "SentencePieceTokenizer",
            Self::BertWordPieceLowerCase => "BertWordPieceLowerCase",
            Self::BertWordPieceCase => "BertWordPieceCase",
            Self::NullTokenizer => "NullTokenizer",
            Self::ByteTokenizer => "ByteTokenizer",
            Self::MaskedByteTokenizer => "MaskedByteTokenizer",
        }
    }
}

impl fmt::Display for TokenizerKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for TokenizerKind {
    type Err = TokenizerError;

    fn from_str(name: &str) -> Result<Self, TokenizerError> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| TokenizerError::UnknownKind {
                name: name.to_owned(),
                valid: Self::ALL.map(Self::name).join(", "),
            })
    }
}
