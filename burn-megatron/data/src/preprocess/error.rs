//! `PreprocessError`: why text cannot be made into a data set.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::indexed_dataset::{ElementType, IndexedDatasetError};
use crate::tokenizer::Token;

/// Why text cannot be made into a data set. Nothing is left of its files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say it")]
pub enum PreprocessError {
    /// The configuration contradicts itself, the inputs or the tokenizer.
    #[error("{reason}")]
    Config { reason: String },
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A Parquet file cannot be read.
    #[cfg(feature = "parquet")]
    #[error("cannot read {}: {source}", path.display())]
    Parquet {
        path: PathBuf,
        source: parquet::errors::ParquetError,
    },
    /// A document cannot be taken: not JSON, no such key, not UTF-8, too long.
    #[error("{0}")]
    Bad(BadDocument),
    /// All documents were bad and left out.
    #[error("none of {documents} documents can be taken, the first: {first}")]
    NothingTaken { documents: u64, first: BadDocument },
    #[error(
        "the tokenizer gave token {token} in {}, which {element_type}, the type for its vocabulary of \
        {vocabulary_size}, cannot hold",
        path.display()
    )]
    Token {
        token: Token,
        element_type: ElementType,
        vocabulary_size: usize,
        path: PathBuf,
    },
    /// The data set cannot be written.
    #[error(transparent)]
    Write(#[from] IndexedDatasetError),
    /// The observer asked to stop.
    #[error("stopped")]
    Stopped,
}

impl PreprocessError {
    /// Returns what turns an error of the operating system into one that names the file.
    pub(super) fn read(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Read {
            path: path.to_owned(),
            source,
        }
    }
}

/// A document that cannot be taken, and where it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadDocument {
    /// The file.
    pub path: Arc<Path>,
    /// What `number` counts: `line` or `row`.
    pub unit: &'static str,
    /// Line or row, from 1 on.
    pub number: u64,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for BadDocument {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}, {} {}: {}",
            self.path.display(),
            self.unit,
            self.number,
            self.reason
        )
    }
}
