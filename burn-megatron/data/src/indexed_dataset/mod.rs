//! Tokens of documents in two files, as Megatron-LM stores them: `.bin` and `.idx`.
//!
//! `.bin` holds the tokens of all sequences. `.idx` holds, in little-endian, a header of 34 bytes (magic, version, type
//! of an element, number of sequences, number of boundaries), the length of each sequence in tokens (`i32`), its offset
//! in `.bin` in bytes (`i64`), and the boundaries of documents (`i64`): document `d` is the sequences from boundary `d`
//! up to boundary `d + 1`. A document is one sequence, or one for each of its sentences; one without tokens has none.

mod element;
mod error;
mod index;
mod merge;
mod reader;
mod temporary;
#[cfg(test)]
mod tests;
mod writer;

use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};

pub use element::ElementType;
pub use error::IndexedDatasetError;
pub use merge::merge;
pub use reader::IndexedDataset;
pub use writer::{DatasetTotals, IndexedDatasetWriter};

/// Documents as tokens, which can be read in parts.
pub trait TokenDocuments: Send + Sync {
    /// Returns the number of documents.
    fn num_documents(&self) -> usize;

    /// Returns the number of tokens of a document.
    ///
    /// # Panics
    /// If there is no such document.
    fn document_length(&self, document: usize) -> usize;

    /// Appends these tokens of a document.
    ///
    /// # Panics
    /// If there is no such document, or no such tokens in it.
    fn read(&self, document: usize, range: Range<usize>, tokens: &mut Vec<u32>);
}

/// Documents that are divided into sentences.
pub trait SentenceDocuments: Send + Sync {
    /// Returns the sentences of all documents, one after the other.
    fn sentences(&self) -> &dyn TokenDocuments;

    /// Returns the number of documents, each of several sentences.
    fn num_whole_documents(&self) -> usize;

    /// Returns the sentences of a document, which follow those of the document before.
    ///
    /// # Panics
    /// If there is no such document.
    fn document_sentences(&self, document: usize) -> Range<usize>;
}

/// Returns the path of the tokens of a data set: `{prefix}.bin`.
pub fn bin_path(prefix: &Path) -> PathBuf {
    with_suffix(prefix, ".bin")
}

/// Returns the path of the index of a data set: `{prefix}.idx`.
pub fn idx_path(prefix: &Path) -> PathBuf {
    with_suffix(prefix, ".idx")
}

/// Appends to the last name of a path, whatever dots it has.
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}
