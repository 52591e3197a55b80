//! A vocabulary from a corpus.
//!
//! The same files give the same vocabulary: words are counted, sorted, and only then given to a trainer of the
//! `tokenizers` crate.

mod corpus;
mod vocabulary;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::str::FromStr;

use strum::{Display, IntoStaticStr, VariantArray};

use self::corpus::{Corpus, WordReader};
pub use self::vocabulary::TrainedVocabulary;
use super::TokenizerError;

/// What a vocabulary is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum VocabularyKind {
    /// GPT-2's byte-level byte pair encoding.
    Bpe,
    /// BERT's word pieces.
    WordPiece,
    /// T5's most probable pieces.
    Unigram,
}

impl VocabularyKind {
    /// Returns the name in `--type`.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl FromStr for VocabularyKind {
    type Err = TokenizerError;

    fn from_str(name: &str) -> Result<Self, TokenizerError> {
        let found = Self::VARIANTS.iter().find(|kind| kind.name() == name);
        found.copied().ok_or_else(|| TokenizerError::UnknownKind {
            name: name.to_owned(),
            valid: Self::VARIANTS
                .iter()
                .map(|kind| kind.name())
                .collect::<Vec<_>>()
                .join(", "),
        })
    }
}

/// Which vocabulary to train.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrainConfig {
    /// What it is made of.
    pub kind: VocabularyKind,
    /// Most tokens, special ones included. A small corpus gives fewer.
    pub vocab_size: usize,
    /// Whether word pieces are of lower case without accents.
    pub lower_case: bool,
    /// T5's `<extra_id_0>`, `<extra_id_1>`, … of a unigram vocabulary.
    pub num_sentinels: usize,
}

/// What training does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrainProgress {
    /// Words are counted.
    Reading {
        /// Bytes that were read.
        bytes: u64,
        /// Bytes of all files.
        total: u64,
    },
    /// Tokens are chosen.
    Training {
        /// Words that differ.
        words: usize,
    },
}

/// Returns the vocabulary of a corpus of text files; in folders, all files that are text.
///
/// # Errors
/// If a file cannot be read, if there is no text, or if the vocabulary cannot be that small.
pub fn train(
    config: &TrainConfig,
    inputs: &[PathBuf],
    progress: &(dyn Fn(TrainProgress) + Sync),
) -> Result<TrainedVocabulary, TokenizerError> {
    if config.num_sentinels > 0 && config.kind != VocabularyKind::Unigram {
        let reason = format!("sentinels are for unigram vocabularies, not for {}", config.kind);
        return Err(TokenizerError::Training(reason));
    }
    let reader = match config.kind {
        VocabularyKind::Bpe => WordReader::byte_level(),
        VocabularyKind::WordPiece => WordReader::bert(config.lower_case)?,
        VocabularyKind::Unigram => WordReader::unigram()?,
    };
    let corpus = Corpus::new(inputs)?;
    let words = corpus.count_words(&reader, progress)?;
    progress(TrainProgress::Training { words: words.len() });
    match config.kind {
        VocabularyKind::Bpe => vocabulary::bpe(config, words),
        VocabularyKind::WordPiece => vocabulary::word_piece(config, words),
        VocabularyKind::Unigram => vocabulary::unigram(config, words),
    }
}
