//! What can be wrong with a tokenizer's files.

use std::io;
use std::path::PathBuf;

/// Why a tokenizer cannot be loaded, saved, trained or used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum TokenizerError {
    #[error("there is no tokenizer {name:?}; valid are {valid}")]
    UnknownKind { name: String, valid: String },
    #[error("{kind} needs {what}")]
    Missing { kind: &'static str, what: String },
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// Read, write.
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// A file does not have the form that its name promises.
    #[error("{file}: {reason}")]
    Invalid {
        file: String,
        /// What is wrong, and where.
        reason: String,
    },
    /// A line of a file does not have the form that its name promises.
    #[error("{file}, line {line}: {reason}")]
    InvalidLine {
        file: String,
        /// Counted from 1.
        line: usize,
        reason: String,
    },
    /// A file is larger than any vocabulary.
    #[error("{} has {bytes} bytes; a file of a tokenizer has at most {limit}", path.display())]
    TooLarge {
        path: PathBuf,
        bytes: u64,
        /// [`crate::tokenizer::TokenizerFiles::MAX_FILE_BYTES`].
        limit: u64,
    },
    /// A saved tokenizer's content is not what was saved.
    #[error("{file} has SHA-256 {found}, but {manifest} names {expected}")]
    Damaged {
        file: String,
        manifest: &'static str,
        expected: String,
        found: String,
    },
    /// Two tokenizers that must be one are not.
    #[error(transparent)]
    Different(Box<TokenizerDifference>),
    /// A model has fewer embeddings than the tokenizer has tokens.
    #[error(
        "the tokenizer has {tokens} tokens, but the model's vocabulary has {model_vocabulary_size}; \
         a model for it needs at least {tokens}"
    )]
    VocabularyTooLarge {
        tokens: usize,
        model_vocabulary_size: usize,
    },
    #[error("no token for {part:?}: {reason}")]
    NoToken { part: String, reason: String },
    /// A vocabulary cannot be trained on what was given.
    #[error("{0}")]
    Training(String),
}

/// Two tokenizers that must be one.
#[derive(Debug, thiserror::Error)]
#[error("{left_name} is {left} ({left_hash}), but {right_name} is {right} ({right_hash}): the vocabularies differ")]
pub struct TokenizerDifference {
    /// Where the first one is from.
    pub left_name: String,
    /// The first one's kind and files.
    pub left: String,
    /// Its SHA-256, shortened.
    pub left_hash: String,
    /// Where the second one is from.
    pub right_name: String,
    /// The second one's kind and files.
    pub right: String,
    /// Its SHA-256, shortened.
    pub right_hash: String,
}

impl TokenizerError {
    /// Returns an error of a file's content.
    pub(super) fn invalid(file: &str, reason: impl std::fmt::Display) -> Self {
        Self::Invalid {
            file: file.to_owned(),
            reason: reason.to_string(),
        }
    }
}
