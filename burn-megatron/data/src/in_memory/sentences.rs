//! `InMemorySentences`: documents that are divided into sentences, in memory.

use std::ops::Range;

use super::InMemoryDocuments;
use crate::indexed_dataset::{SentenceDocuments, TokenDocuments};
use crate::preprocess::{SentenceEnds, split_sentences};
use crate::tokenizer::{Token, Tokenizer};

/// Documents as sentences of tokens: what a data set that was written with `--split-sentences` holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InMemorySentences {
    sentences: InMemoryDocuments,
    /// First sentence of every document, and the end of the last.
    boundaries: Vec<usize>,
}

impl InMemorySentences {
    /// Returns a store without documents for tokens below `vocabulary_size`.
    pub fn new(vocabulary_size: usize) -> Self {
        Self {
            sentences: InMemoryDocuments::new(vocabulary_size),
            boundaries: vec![0],
        }
    }

    /// Returns the documents of `texts`, in their order, divided by [`split_sentences`]. No token is added to those of
    /// the text; a sentence without tokens is left out.
    pub fn tokenize<'a>(texts: impl IntoIterator<Item = &'a str>, tokenizer: &dyn Tokenizer) -> Self {
        let mut ranges = vec![];
        let split = |text: &'a str| {
            ranges.clear();
            split_sentences(text, SentenceEnds::Trimmed, &mut ranges);
            ranges.iter().map(|range| &text[range.clone()]).collect::<Vec<_>>()
        };
        Self::tokenize_divided(texts.into_iter().map(split), tokenizer)
    }

    /// Returns the documents of `texts`, in their order, each of whose lines is a sentence.
    pub fn tokenize_lines<'a>(texts: impl IntoIterator<Item = &'a str>, tokenizer: &dyn Tokenizer) -> Self {
        Self::tokenize_divided(texts.into_iter().map(str::lines), tokenizer)
    }

    /// Returns documents of these sentences.
    pub fn tokenize_divided<'a, S: IntoIterator<Item = &'a str>>(
        documents: impl IntoIterator<Item = S>,
        tokenizer: &dyn Tokenizer,
    ) -> Self {
        let mut store = Self::new(tokenizer.vocabulary_size());
        let mut tokens = vec![];
        for sentences in documents {
            for sentence in sentences {
                tokens.clear();
                tokenizer.encode(sentence, &mut tokens);
                if !tokens.is_empty() {
                    store.sentences.push(&tokens);
                }
            }
            store.boundaries.push(store.sentences.len());
        }
        store
    }

    /// Appends a document of these sentences, as they are.
    ///
    /// # Panics
    /// If a token is outside the vocabulary and does not fit.
    pub fn push<S: AsRef<[Token]>>(&mut self, document: impl IntoIterator<Item = S>) {
        for sentence in document {
            self.sentences.push(sentence.as_ref());
        }
        self.boundaries.push(self.sentences.len());
    }
}

impl SentenceDocuments for InMemorySentences {
    fn sentences(&self) -> &dyn TokenDocuments {
        &self.sentences
    }

    fn num_whole_documents(&self) -> usize {
        self.boundaries.len() - 1
    }

    fn document_sentences(&self, document: usize) -> Range<usize> {
        self.boundaries[document]..self.boundaries[document + 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::ByteTokenizer;

    #[test]
    fn documents_are_divided_into_sentences_or_lines() {
        let texts = ["A b. C d!", "", "E\n\nf"];
        let lengths = |store: &InMemorySentences| -> Vec<Vec<usize>> {
            let document = |document| {
                let sentences = store.document_sentences(document);
                sentences
                    .map(|sentence| store.sentences().document_length(sentence))
                    .collect()
            };
            (0..store.num_whole_documents()).map(document).collect()
        };
        let store = InMemorySentences::tokenize(texts, &ByteTokenizer);
        assert_eq!(lengths(&store), [vec![4, 4], vec![], vec![4]]);
        let store = InMemorySentences::tokenize_lines(texts, &ByteTokenizer);
        assert_eq!(lengths(&store), [vec![9], vec![], vec![1, 1]]);
    }

    #[test]
    fn sentences_can_be_pushed() {
        let mut store = InMemorySentences::new(10);
        store.push([[1, 2].as_slice(), &[3]]);
        store.push::<[Token; 0]>([]);
        assert_eq!(store.num_whole_documents(), 2);
        assert_eq!(store.document_sentences(0), 0..2);
        assert!(store.document_sentences(1).is_empty());
        let mut tokens = vec![];
        store.sentences().read(1, 0..1, &mut tokens);
        assert_eq!(tokens, [3]);
    }
}
