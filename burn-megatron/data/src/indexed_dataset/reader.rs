//! `IndexedDataset`: a data set's two files, memory-mapped.

use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use super::index::{Index, map};
use super::{ElementType, IndexedDatasetError, SentenceDocuments, TokenDocuments, bin_path, idx_path};
use crate::tokenizer::Token;

/// A data set of Megatron-LM, memory-mapped: processes on a machine share its pages.
///
/// As [`TokenDocuments`] its documents are Megatron-LM's sequences, which is what its `GPTDataset` takes samples of:
/// where documents were split into sentences, each is one. The documents themselves are
/// [`document_sequences`](Self::document_sequences).
#[derive(Debug)]
pub struct IndexedDataset {
    prefix: PathBuf,
    index: Index,
    bin: Mmap,
}

impl IndexedDataset {
    /// Opens `{prefix}.bin` and `{prefix}.idx`, and checks every length, offset and boundary: reading panics on no
    /// file.
    ///
    /// Takes a pass over the index, 20 bytes for each document: about a second for a hundred million.
    ///
    /// # Errors
    /// If a file is missing, is not of a data set, or is damaged: the message has file, field, found and expected
    /// value.
    pub fn open(prefix: impl AsRef<Path>) -> Result<Self, IndexedDatasetError> {
        let prefix = prefix.as_ref();
        let bin_path = bin_path(prefix);
        let bin = map(&bin_path)?;
        let index = Index::open(&idx_path(prefix), &bin_path, bin.len() as u64)?;
        Ok(Self {
            prefix: prefix.to_owned(),
            index,
            bin,
        })
    }

    /// Returns the path of both files without `.bin` and `.idx`.
    pub fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// Returns the type in which tokens are stored.
    pub fn element_type(&self) -> ElementType {
        self.index.header.element_type
    }

    /// Returns the number of sequences.
    pub fn num_sequences(&self) -> usize {
        self.index.header.num_sequences
    }

    /// Returns the number of tokens of all sequences.
    pub fn num_tokens(&self) -> u64 {
        self.index.num_tokens
    }

    /// Returns the bytes of the `.bin` file.
    pub fn bin_bytes(&self) -> usize {
        self.bin.len()
    }

    /// Returns the number of boundaries: one more than that of the documents.
    pub fn num_boundaries(&self) -> usize {
        self.index.header.num_boundaries
    }

    /// Returns the boundaries of documents, ascending from 0: each is a number of sequences.
    pub fn boundaries(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        (0..self.num_boundaries()).map(|boundary| self.index.boundary(boundary))
    }

    /// Returns the sequences of a document, of which there is one less than boundaries.
    ///
    /// # Panics
    /// If there is no such document.
    pub fn document_sequences(&self, document: usize) -> Range<usize> {
        self.index.boundary(document)..self.index.boundary(document + 1)
    }

    /// Returns whether the sequences fill the `.bin` file in their order, as they do where they have been written by
    /// [`IndexedDatasetWriter`](super::IndexedDatasetWriter).
    pub fn is_contiguous(&self) -> bool {
        self.index.is_contiguous && self.num_tokens() * self.element_type().size_bytes() as u64 == self.bin.len() as u64
    }

    /// Returns whether the index has a mode for each sequence, as in Megatron-LM's multimodal data sets. They are not
    /// read.
    pub fn has_modes(&self) -> bool {
        self.index.header.has_modes
    }

    /// Returns the elements of a sequence, as they are stored.
    ///
    /// # Panics
    /// If there is no such sequence.
    pub fn sequence_bytes(&self, sequence: usize) -> &[u8] {
        let start = self.index.offset(sequence);
        &self.bin[start..start + self.index.length(sequence) * self.element_type().size_bytes()]
    }

    /// Reads every token and checks that it is one of a vocabulary.
    ///
    /// # Errors
    /// If a token is not below the size of the vocabulary, or no token at all: its place and its value.
    pub fn check_vocabulary(&self, vocabulary_size: usize) -> Result<(), IndexedDatasetError> {
        let mut tokens = vec![];
        for sequence in 0..self.num_sequences() {
            tokens.clear();
            self.read(sequence, 0..self.document_length(sequence), &mut tokens);
            if let Some(place) = tokens.iter().position(|&token| token as usize >= vocabulary_size) {
                let path = bin_path(&self.prefix);
                let field = format!("token {place} of sequence {sequence}");
                let expected = format!("a token below {vocabulary_size}, the size of the vocabulary");
                return Err(IndexedDatasetError::field(&path, field, tokens[place], expected));
            }
        }
        Ok(())
    }

    pub(super) fn length_bytes(&self) -> &[u8] {
        self.index.length_bytes()
    }
}

impl TokenDocuments for IndexedDataset {
    fn num_documents(&self) -> usize {
        self.num_sequences()
    }

    fn document_length(&self, document: usize) -> usize {
        self.index.length(document)
    }

    /// Appends these tokens of a sequence. An element that is no token (negative, a fraction, beyond 32 bits) becomes
    /// [`Token::MAX`], which no vocabulary has.
    fn read(&self, document: usize, range: Range<usize>, tokens: &mut Vec<Token>) {
        let size = self.element_type().size_bytes();
        let length = self.index.length(document);
        assert!(
            range.start <= range.end && range.end <= length,
            "tokens {range:?} of {length} in document {document}"
        );
        let start = self.index.offset(document);
        self.element_type()
            .decode(&self.bin[start + range.start * size..start + range.end * size], tokens);
    }
}

impl SentenceDocuments for IndexedDataset {
    /// Returns its sequences: sentences where it was written with `--split-sentences`, else whole documents.
    fn sentences(&self) -> &dyn TokenDocuments {
        self
    }

    fn num_whole_documents(&self) -> usize {
        self.num_boundaries() - 1
    }

    fn document_sentences(&self, document: usize) -> Range<usize> {
        self.document_sequences(document)
    }
}
