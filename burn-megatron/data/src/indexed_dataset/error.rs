//! `IndexedDatasetError`: what is wrong with a data set, in which file.

use std::io;
use std::path::{Path, PathBuf};

use super::ElementType;
use crate::tokenizer::Token;

/// Why a data set cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say it")]
pub enum IndexedDatasetError {
    /// The operating system refused: no such file, no space, no permission.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// A field of a file is not what it must be: the file is damaged, or is not one of a data set.
    #[error("{}: {field} is {found}, expected {expected}", path.display())]
    Field {
        path: PathBuf,
        /// The field, with its number where there are several.
        field: String,
        found: String,
        expected: String,
    },
    #[error("{} is being written by another program: wait for it, or choose another prefix", path.display())]
    Busy { path: PathBuf },
    #[error(
        "token {token} does not fit into {element_type} of {}, which takes tokens up to {}",
        path.display(),
        element_type.max_token()
    )]
    Token {
        token: Token,
        element_type: ElementType,
        path: PathBuf,
    },
    #[error(
        "a sequence of {tokens} tokens is too long for {}: an .idx file has lengths up to {}",
        path.display(),
        i32::MAX
    )]
    SequenceTooLong { tokens: usize, path: PathBuf },
    #[error(
        "{} has tokens of {first_type}, {} of {other_type}: only data sets of one type can be merged",
        first.display(),
        other.display()
    )]
    TypesDiffer {
        first: PathBuf,
        first_type: ElementType,
        other: PathBuf,
        other_type: ElementType,
    },
    #[error("{} is both an input and the output of the merge: choose another output prefix", prefix.display())]
    OutputIsInput { prefix: PathBuf },
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
