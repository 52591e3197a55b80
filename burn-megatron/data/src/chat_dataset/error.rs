//! `ChatError`: what templates and files of conversations can cause.

use std::io;
use std::path::{Path, PathBuf};

use super::conversation::Problem;
use crate::samples::SampleError;

/// Why there are no samples of conversations.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ChatError {
    #[error("chat template of {file}: {reason}")]
    Template {
        file: &'static str,
        /// What is wrong, and where.
        reason: String,
    },

    /// A conversation that is of no file cannot be written as a text.
    #[error("conversation: {reason}")]
    Conversation {
        /// What is wrong, and with which message, counted from 1.
        reason: String,
    },

    #[error("cannot read {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },

    /// A line is no conversation.
    #[error("{}, line {line}: {reason}", path.display())]
    Line {
        path: PathBuf,
        /// Counted from 1.
        line: u64,
        reason: String,
    },

    /// A message of a conversation cannot be taken.
    #[error("{}, line {line}, message {message}: {reason}", path.display())]
    Message {
        path: PathBuf,
        /// Counted from 1.
        line: u64,
        /// Its place in the conversation, counted from 1.
        message: usize,
        reason: String,
    },

    /// A conversation is longer than a sample, and is not to be cut.
    #[error(
        "{}, line {line}: the conversation has {tokens} tokens, and a sample of --seq-length {seq_length} takes {}; \
         take longer samples, or have it cut", path.display(), seq_length + 1
    )]
    TooLong {
        path: PathBuf,
        /// Counted from 1.
        line: u64,
        tokens: usize,
        /// Tokens that the model sees of a sample.
        seq_length: usize,
    },

    /// A setting or an index is wrong.
    #[error(transparent)]
    Sample(#[from] SampleError),
}

impl ChatError {
    pub(super) fn conversation(problem: Problem) -> Self {
        let reason = match problem.message {
            None => problem.reason,
            Some(message) => format!("message {}: {}", message + 1, problem.reason),
        };
        Self::Conversation { reason }
    }

    /// Returns the error of a conversation of a file.
    pub(super) fn in_file(problem: Problem, path: &Path, line: u64) -> Self {
        let (path, reason) = (path.to_owned(), problem.reason);
        match problem.message {
            None => Self::Line { path, line, reason },
            Some(message) => Self::Message {
                path,
                line,
                message: message + 1,
                reason,
            },
        }
    }
}
