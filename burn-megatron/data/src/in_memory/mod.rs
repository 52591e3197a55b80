//! `InMemoryDocuments`: tokens of all documents in one flat array, and [`InMemorySentences`], which divides them.

mod sentences;

use std::ops::Range;

use crate::indexed_dataset::TokenDocuments;
use crate::tokenizer::{Token, Tokenizer};

pub use sentences::InMemorySentences;

/// Documents as tokens: one flat array and where each document ends in it.
///
/// 16 bits hold every vocabulary of up to 65536 tokens and halve the memory of a large corpus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InMemoryDocuments {
    tokens: Tokens,
    /// Start of every document, and the end of the last: one entry more than documents.
    offsets: Vec<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Tokens {
    Narrow(Vec<u16>),
    Wide(Vec<u32>),
}

impl InMemoryDocuments {
    /// Returns a store without documents for tokens below `vocabulary_size`.
    pub fn new(vocabulary_size: usize) -> Self {
        let is_narrow = vocabulary_size <= 1 << 16;
        Self {
            tokens: if is_narrow {
                Tokens::Narrow(vec![])
            } else {
                Tokens::Wide(vec![])
            },
            offsets: vec![0],
        }
    }

    /// Returns the documents of `texts`, in their order, each ending in the end-of-document token if there is one.
    pub fn tokenize<'a>(texts: impl IntoIterator<Item = &'a str>, tokenizer: &dyn Tokenizer) -> Self {
        let mut documents = Self::new(tokenizer.vocabulary_size());
        let mut tokens = vec![];
        for text in texts {
            tokens.clear();
            tokenizer.encode(text, &mut tokens);
            tokens.extend(tokenizer.end_of_document());
            documents.push(&tokens);
        }
        documents
    }

    /// Appends a document as it is, without adding an end-of-document token.
    ///
    /// # Panics
    /// If a token is outside the vocabulary and does not fit.
    pub fn push(&mut self, document: &[Token]) {
        match &mut self.tokens {
            Tokens::Narrow(tokens) => tokens.extend(document.iter().map(|&token| {
                u16::try_from(token).unwrap_or_else(|_| panic!("token {token} in a store of up to 65536 tokens"))
            })),
            Tokens::Wide(tokens) => tokens.extend_from_slice(document),
        }
        self.offsets.push(self.num_tokens());
    }

    /// Returns the number of documents.
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Returns whether there is no document.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of tokens of all documents.
    pub fn num_tokens(&self) -> usize {
        match &self.tokens {
            Tokens::Narrow(tokens) => tokens.len(),
            Tokens::Wide(tokens) => tokens.len(),
        }
    }

    /// Returns the tokens of document `index`.
    ///
    /// # Panics
    /// If there is no such document.
    pub fn document(&self, index: usize) -> Vec<Token> {
        let mut tokens = vec![];
        self.read(index, 0..self.document_length(index), &mut tokens);
        tokens
    }

    fn bounds(&self, index: usize) -> Range<usize> {
        assert!(index < self.len(), "document {index} of {} documents", self.len());
        self.offsets[index]..self.offsets[index + 1]
    }
}

impl TokenDocuments for InMemoryDocuments {
    fn num_documents(&self) -> usize {
        self.len()
    }

    fn document_length(&self, document: usize) -> usize {
        self.bounds(document).len()
    }

    fn read(&self, document: usize, range: Range<usize>, tokens: &mut Vec<Token>) {
        let bounds = self.bounds(document);
        assert!(
            range.end <= bounds.len(),
            "tokens {range:?} of the {} tokens of document {document}",
            bounds.len()
        );
        let range = bounds.start + range.start..bounds.start + range.end;
        match &self.tokens {
            Tokens::Narrow(all) => tokens.extend(all[range].iter().map(|&token| Token::from(token))),
            Tokens::Wide(all) => tokens.extend_from_slice(&all[range]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::ByteTokenizer;

    #[test]
    fn documents_keep_their_order_and_end_in_the_end_token() {
        let documents = InMemoryDocuments::tokenize(["xy", "ü"], &ByteTokenizer);
        assert_eq!(documents.len(), 2);
        assert_eq!(documents.num_tokens(), 6);
        assert_eq!(documents.document(0), [120, 121, 256]);
        assert_eq!(documents.document(1), [0xC3, 0xBC, 256]);
    }

    #[test]
    fn an_empty_document_can_be_pushed() {
        let mut documents = InMemoryDocuments::new(10);
        assert!(documents.is_empty());
        documents.push(&[]);
        documents.push(&[7]);
        assert_eq!(documents.len(), 2);
        assert_eq!(documents.document(0), [0; 0]);
        assert_eq!(documents.document(1), [7]);
    }

    #[test]
    fn tokens_of_large_vocabularies_are_kept_whole() {
        let mut documents = InMemoryDocuments::new(128_256);
        documents.push(&[1, 128_255, 65_536]);
        let mut tokens = vec![9];
        documents.read(0, 1..3, &mut tokens);
        assert_eq!(tokens, [9, 128_255, 65_536]);
    }

    #[test]
    #[should_panic(expected = "document 0 of 0 documents")]
    fn a_missing_document_is_a_panic_with_both_numbers() {
        InMemoryDocuments::new(10).document(0);
    }

    #[test]
    #[should_panic(expected = "token 65536 in a store of up to 65536 tokens")]
    fn a_token_that_does_not_fit_is_a_panic() {
        InMemoryDocuments::new(1 << 16).push(&[65_536]);
    }
}
