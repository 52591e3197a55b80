//! `IndexedDatasetError`: what is wrong with a data set, in which file.

use std::io;
use std::path::{Path, PathBuf};

use super::ElementType;
use crate::tokenizer::Token;

/// Why a data set cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexedDatasetError {
    /// The operating system refused: no such file, no space, no permission.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// A field of a file is not what it must be: the file is damaged, or is not one of a data set.
    #[error("{}: {field} is {found}, expected {expected}", path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// The field, with its number where there are several.
        field: String,
        /// Its value.
        found: String,
        /// Which values are valid.
        expected: String,
    },
    /// Another program has the file open for writing.
    #[error("{} is being written by another program: wait for it, or choose another prefix", path.display())]
    Busy {
        /// The temporary file.
        path: PathBuf,
    },
    /// A token is too large for the type in which a file stores them.
    #[error(
        "token {token} does not fit into {element_type} of {}, which takes tokens up to {}",
        path.display(),
        element_type.max_token()
    )]
    Token {
        /// The token.
        token: Token,
        /// The type of the file's elements.
        element_type: ElementType,
        /// The file.
        path: PathBuf,
    },
    /// A sequence is longer than its length's type can express.
    #[error(
        "a sequence of {tokens} tokens is too long for {}: an .idx file has lengths up to {}",
        path.display(),
        i32::MAX
    )]
    SequenceTooLong {
        /// Tokens of the sequence.
        tokens: usize,
        /// The file.
        path: PathBuf,
    },
    /// Data sets of different types cannot be merged.
    #[error(
        "{} has tokens of {first_type}, {} of {other_type}: only data sets of one type can be merged",
        first.display(),
        other.display()
    )]
    TypesDiffer {
        /// The first data set's prefix.
        first: PathBuf,
        /// Its type.
        first_type: ElementType,
        /// The prefix of one that differs.
        other: PathBuf,
        /// Its type.
        other_type: ElementType,
    },
    /// A merge that would read what it writes.
    #[error("{} is both an input and the output of the merge: choose another output prefix", prefix.display())]
    OutputIsInput {
        /// The prefix.
        prefix: PathBuf,
    },
    /// A merge without inputs.
    #[error("no data set to merge, expected at least one")]
    NothingToMerge,
}

impl IndexedDatasetError {
    /// Returns what turns an error of the operating system into one that names action and file.
    pub(super) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File {
            action,
            path: path.to_owned(),
            source,
        }
    }

    pub(super) fn field(
        path: &Path,
        field: impl Into<String>,
        found: impl ToString,
        expected: impl Into<String>,
    ) -> Self {
        Self::Field {
            path: path.to_owned(),
            field: field.into(),
            found: found.to_string(),
            expected: expected.into(),
        }
    }
}
