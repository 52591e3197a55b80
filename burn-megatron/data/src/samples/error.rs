//! `SampleError`: what settings, files and the index cache can cause on the way from documents to samples.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

use crate::tokenizer::Token;

/// Why there are no samples.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum SampleError {
    /// A setting, or a number that follows from settings and data, is outside its range.
    #[error("{name} must be {rule}, got {value}")]
    Setting {
        name: &'static str,
        rule: String,
        /// What it was set to; the largest number if it is even larger.
        value: u64,
    },

    /// A share or probability outside its range.
    #[error("{name} must be {rule}, got {value}")]
    Probability {
        name: &'static str,
        rule: &'static str,
        value: f64,
    },

    #[error(
        "samples of {samples} need {role}, which the tokenizer does not have; the MaskedByteTokenizer and vocabularies \
         of BERT or T5 have it"
    )]
    MissingToken { samples: &'static str, role: &'static str },

    #[error(
        "no document gives a sample: of {documents} documents {enough} have at least {min_sentences} sentences, and \
         none of these is without a sentence of more than {long_sentence} tokens; preprocess_data --split-sentences \
         divides documents into sentences"
    )]
    NoMaskedSamples {
        documents: usize,
        min_sentences: usize,
        enough: usize,
        long_sentence: usize,
    },

    #[error("sample {index} requested from a data set of {num_samples} samples")]
    SampleOutOfRange { index: u64, num_samples: u64 },

    /// An index and the documents do not belong together.
    #[error("the index of sample {index} leads to {place}, which the documents do not have")]
    WrongIndex { index: u64, place: String },

    #[error(
        "sample {index} has token {token} of a vocabulary of {vocabulary_size}: its documents are of another tokenizer"
    )]
    UnknownToken {
        index: u64,
        token: Token,
        vocabulary_size: usize,
    },

    #[error("split weights must be finite and above 0, got train {train}, validation {validation}")]
    SplitWeights { train: f64, validation: f64 },

    #[error(
        "{num_documents} documents at {train} : {validation} leave {num_train} for training and \
         {num_validation} for validation; both need at least 1: give more documents \
         (--data-path, --data-limit), a more even split, or a data set of a text's lines (preprocess_data --split-on \
         line), which --split 100,0,0 takes whole"
    )]
    SplitTooSmall {
        num_documents: usize,
        train: f64,
        validation: f64,
        num_train: usize,
        num_validation: usize,
    },

    /// A split that cannot be read.
    #[error(
        "--split {split}: {token:?} {problem}; valid are up to three numbers for training, validation and test, as \
         969,30,1"
    )]
    Split {
        split: String,
        /// The part that is wrong.
        token: String,
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
        problem: &'static str,
    },

    #[error(
        "the blend takes {wanted} samples of data set {dataset}, which has {available}; ask for fewer samples, or give \
         weights, with which data sets are repeated"
    )]
    BlendTooLarge {
        /// Its place in the blend, from 0.
        dataset: usize,
        wanted: u64,
        available: u64,
    },

    /// What happened with one of several data sets.
    #[error("{prefix}, {split}: {source}")]
    Dataset {
        prefix: String,
        split: &'static str,
        source: Box<SampleError>,
    },

    #[error(
        "cannot {action} {path} of the index cache: {source}; --data-cache-path names another folder for it",
        path = .path.display()
    )]
    Cache {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },

    /// Another process builds an index for too long.
    #[error(
        "another process has held {path} for {waited:?}, so it builds the index still or hangs; end it, or name \
         another folder with --data-cache-path", path = .path.display()
    )]
    CacheLocked { path: PathBuf, waited: Duration },
}

impl SampleError {
    /// Returns what turns an error of the operating system into one that names action and file of the index cache.
    pub(crate) fn cache(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Cache {
            action,
            path: path.to_owned(),
            source,
        }
    }

    pub(crate) fn setting(name: &'static str, rule: impl Into<String>, value: impl TryInto<u64>) -> Self {
        Self::Setting {
            name,
            rule: rule.into(),
            value: value.try_into().unwrap_or(u64::MAX),
        }
    }
}
