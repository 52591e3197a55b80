//! `PreprocessConfig`: what is read, how it is split, where it is written.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::thread;

use super::{PreprocessError, SentenceEnds};
use crate::tokenizer::Tokenizer;

/// How an input file holds documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputFormat {
    /// Plain text: `.txt`.
    Text,
    /// A JSON object on each line: `.jsonl`, `.ndjson`, `.json`.
    Jsonl,
    /// Columns: `.parquet`.
    Parquet,
}

/// Where documents end in plain text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SplitOn {
    /// A file is a document.
    #[default]
    File,
    /// Blank lines are between documents.
    BlankLine,
    /// Every line that is not blank is a document.
    Line,
}

/// What [`preprocess`](super::preprocess) does.
#[derive(Debug, Clone)]
pub struct PreprocessConfig {
    /// Files, folders (searched with their subfolders) and globs, read in this order; inside a folder or glob, sorted
    /// by path.
    pub inputs: Vec<String>,
    /// Format of all inputs, or `None` for what the name of each says.
    pub format: Option<InputFormat>,
    /// Where documents end in plain text.
    pub split_on: SplitOn,
    /// Keys of JSON objects, or columns: each becomes a data set. Plain text takes exactly one, for its name.
    pub keys: Vec<String>,
    /// Path and beginning of the name of every data set.
    pub output_prefix: PathBuf,
    /// Adds the end-of-document token to each document that has tokens.
    pub append_end_of_document: bool,
    /// Splits documents into sentences, or `None` for a document as one sequence.
    pub sentences: Option<SentenceEnds>,
    /// Leaves bad documents out and counts them, where otherwise the first is an error.
    pub skip_bad: bool,
    /// Threads that encode.
    pub workers: NonZeroUsize,
    /// Order of the documents: in `n` partitions document `i` is in partition `i mod n`, and one partition follows
    /// another.
    pub partitions: NonZeroUsize,
    /// Longest document in bytes: a longer one is bad.
    pub max_document_bytes: usize,
}

impl PreprocessConfig {
    /// Longest document in bytes, by default: 256 MiB.
    pub const MAX_DOCUMENT_BYTES: usize = 256 << 20;

    /// Returns the configuration for these inputs, with a worker for each processor and everything else as in
    /// Megatron-LM.
    pub fn new(inputs: Vec<String>, output_prefix: impl Into<PathBuf>) -> Self {
        Self {
            inputs,
            format: None,
            split_on: SplitOn::File,
            keys: vec!["text".to_owned()],
            output_prefix: output_prefix.into(),
            append_end_of_document: false,
            sentences: None,
            skip_bad: false,
            workers: thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            partitions: NonZeroUsize::MIN,
            max_document_bytes: Self::MAX_DOCUMENT_BYTES,
        }
    }

    /// Returns the prefix of the data set of a key: `{prefix}_{key}_document`, or `_sentence`.
    pub fn dataset_prefix(&self, key: &str) -> PathBuf {
        let level = if self.sentences.is_some() {
            "sentence"
        } else {
            "document"
        };
        let mut prefix = self.output_prefix.clone().into_os_string();
        prefix.push(format!("_{key}_{level}"));
        prefix.into()
    }

    /// Checks what does not need the inputs.
    pub(super) fn validate(&self, tokenizer: &dyn Tokenizer) -> Result<(), PreprocessError> {
        let refused = |reason: String| Err(PreprocessError::Config { reason });
        if self.keys.is_empty() {
            return refused("no key to take documents from, expected one or more".to_owned());
        }
        for (number, key) in self.keys.iter().enumerate() {
            if self.keys[..number].contains(key) {
                return refused(format!("the key {key:?} is given twice: each writes files of its name"));
            }
            if key.contains('/') {
                return refused(format!(
                    "the key {key:?} has a slash, which the name of a file cannot have"
                ));
            }
        }
        if self.append_end_of_document && tokenizer.end_of_document().is_none() {
            return refused("the tokenizer has no end-of-document token to append to documents".to_owned());
        }
        if self.max_document_bytes == 0 {
            return refused("documents of at most 0 bytes, expected 1 or more".to_owned());
        }
        Ok(())
    }
}
