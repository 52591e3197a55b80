//! What can be wrong with a tokenizer's files.

use std::io;
use std::path::PathBuf;

/// Why a tokenizer cannot be loaded, saved, trained or used.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// There is no tokenizer of this name.
    #[error("there is no tokenizer {name:?}; valid are {valid}")]
    UnknownKind {
        /// As it was given.
        name: String,
        /// The names that exist.
        valid: String,
    },
    /// A setting is missing.
    #[error("{kind} needs {what}")]
    Missing {
        /// The tokenizer.
        kind: &'static str,
        /// The flag or the file.
        what: String,
    },
    /// A file cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// Read, write.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A file does not have the form that its name promises.
    #[error("{file}: {reason}")]
    Invalid {
        /// The name of the file.
        file: String,
        /// What is wrong, and where.
        reason: String,
    },
    /// A line of a file does not have the form that its name promises.
    #[error("{file}, line {line}: {reason}")]
    InvalidLine {
        /// The name of the file.
        file: String,
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// A file is larger than any vocabulary.
    #[error("{} has {bytes} bytes; a file of a tokenizer has at most {limit}", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// [`crate::tokenizer::TokenizerFiles::MAX_FILE_BYTES`].
        limit: u64,
    },
    /// A saved tokenizer's content is not what was saved.
    #[error("{file} has SHA-256 {found}, but {manifest} names {expected}")]
    Damaged {
        /// The name of the file.
        file: String,
        /// The file that lists the hashes.
        manifest: &'static str,
        /// The hash that was written.
        expected: String,
        /// The hash of the content.
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
        /// Tokens of the tokenizer.
        tokens: usize,
        /// Tokens of the model.
        model_vocabulary_size: usize,
    },
    /// A part of a text has no token.
    #[error("no token for {part:?}: {reason}")]
    NoToken {
        /// The start of the part.
        part: String,
        /// What would have one.
        reason: String,
    },
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
