//! `SampleError`: what settings, files and the index cache can cause on the way from documents to samples.

use std::{io, path::PathBuf, time::Duration};

use thiserror::Error;

use crate::tokenizer::Token;

/// Why there are no samples.
#[derive(Debug, Error)]
pub enum SampleError {
    /// A setting, or a number that follows from settings and data, is outside its range.
    #[error("{name} must be {rule}, got {value}")]
    Setting {
        /// What it is.
        name: &'static str,
        /// What it must be.
        rule: String,
        /// What it was set to; the largest number if it is even larger.
        value: u64,
    },

    /// A share or probability outside its range.
    #[error("{name} must be {rule}, got {value}")]
    Probability {
        /// What it is.
        name: &'static str,
        /// What it must be.
        rule: &'static str,
        /// What it was set to.
        value: f64,
    },

    /// A vocabulary lacks a token that samples need.
    #[error(
        "samples of {samples} need {role}, which the tokenizer does not have; the MaskedByteTokenizer and vocabularies \
         of BERT or T5 have it"
    )]
    MissingToken {
        /// Which samples.
        samples: &'static str,
        /// What the token is for, and its usual text.
        role: &'static str,
    },

    /// No document gives a sample of a masked data set.
    #[error(
        "no document gives a sample: of {documents} documents {enough} have at least {min_sentences} sentences, and \
         none of these is without a sentence of more than {long_sentence} tokens; preprocess_data --split-sentences \
         divides documents into sentences"
    )]
    NoMaskedSamples {
        /// How many documents there are.
        documents: usize,
        /// Sentences that a sample has at least.
        min_sentences: usize,
        /// Documents that have them.
        enough: usize,
        /// Tokens of the longest sentence that is taken.
        long_sentence: usize,
    },

    /// A sample beyond the end of the data set.
    #[error("sample {index} requested from a data set of {num_samples} samples")]
    SampleOutOfRange {
        /// The sample that was asked for.
        index: u64,
        /// How many there are.
        num_samples: u64,
    },

    /// An index and the documents do not belong together.
    #[error("the index of sample {index} leads to {place}, which the documents do not have")]
    WrongIndex {
        /// The sample that was asked for.
        index: u64,
        /// Where its tokens should be.
        place: String,
    },

    /// Documents of another tokenizer.
    #[error(
        "sample {index} has token {token} of a vocabulary of {vocabulary_size}: its documents are of another tokenizer"
    )]
    UnknownToken {
        /// The sample that was asked for.
        index: u64,
        /// Its token that the tokenizer does not have.
        token: Token,
        /// How many tokens it has.
        vocabulary_size: usize,
    },

    /// The split's weights are not two positive numbers.
    #[error("split weights must be finite and above 0, got train {train}, validation {validation}")]
    SplitWeights {
        /// Weight of the training documents.
        train: f64,
        /// Weight of the validation documents.
        validation: f64,
    },

    /// Too few documents for both parts of the split.
    #[error(
        "{num_documents} documents at {train} : {validation} leave {num_train} for training and \
         {num_validation} for validation; both need at least 1: give more documents \
         (--data-path, --data-limit) or a more even split"
    )]
    SplitTooSmall {
        /// How many documents there are.
        num_documents: usize,
        /// Weight of the training documents.
        train: f64,
        /// Weight of the validation documents.
        validation: f64,
        /// How many documents training would get.
        num_train: usize,
        /// How many documents validation would get.
        num_validation: usize,
    },

    /// A split that cannot be read.
    #[error(
        "--split {split}: {token:?} {problem}; valid are up to three numbers for training, validation and test, as \
         969,30,1"
    )]
    Split {
        /// All of it.
        split: String,
        /// The part that is wrong.
        token: String,
        /// What is wrong with it.
        problem: &'static str,
    },

    /// A list of data that cannot be read.
    #[error(
        "data path: {token:?} at place {place} {problem}; valid are one prefix, several prefixes, or a weight before \
         each prefix, as 0.3 a 0.7 b"
    )]
    DataPath {
        /// The part that is wrong.
        token: String,
        /// Its place in the list, from 1.
        place: usize,
        /// What is wrong with it.
        problem: &'static str,
    },

    /// The data sets of a blend cannot give the samples that it takes of them.
    #[error(
        "the blend takes {wanted} samples of data set {dataset}, which has {available}; ask for fewer samples, or give \
         weights, with which data sets are repeated"
    )]
    BlendTooLarge {
        /// Its place in the blend, from 0.
        dataset: usize,
        /// Samples that the blend takes.
        wanted: u64,
        /// Samples that it has.
        available: u64,
    },

    /// What happened with one of several data sets.
    #[error("{prefix}, {split}: {source}")]
    Dataset {
        /// The data's prefix.
        prefix: String,
        /// Which part of it.
        split: &'static str,
        /// What happened.
        source: Box<SampleError>,
    },

    /// A file of the index cache could not be read or written.
    #[error(
        "cannot {action} {path} of the index cache: {source}; --data-cache-path names another folder for it",
        path = .path.display()
    )]
    Cache {
        /// What was tried.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },

    /// Another process builds an index for too long.
    #[error(
        "another process has held {path} for {waited:?}, so it builds the index still or hangs; end it, or name \
         another folder with --data-cache-path", path = .path.display()
    )]
    CacheLocked {
        /// The lock file.
        path: PathBuf,
        /// How long the wait lasted.
        waited: Duration,
    },
}

impl SampleError {
    pub(crate) fn setting(name: &'static str, rule: impl Into<String>, value: impl TryInto<u64>) -> Self {
        Self::Setting {
            name,
            rule: rule.into(),
            value: value.try_into().unwrap_or(u64::MAX),
        }
    }
}
