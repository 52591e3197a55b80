//! Tokens of all documents in one flat store.

use super::{corpus::Corpus, tokenizer::ByteTokenizer};

/// Documents as tokens: one flat array and where each document ends in it.
///
/// 16 bits hold every vocabulary under 65536 tokens and halve the memory of a large corpus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenDocuments {
    tokens: Vec<u16>,
    /// Start of every document, and the end of the last: `len() + 1` entries.
    offsets: Vec<usize>,
}

impl TokenDocuments {
    /// Returns a store without documents.
    pub fn new() -> Self {
        Self {
            tokens: vec![],
            offsets: vec![0],
        }
    }

    /// Returns the documents of `corpus`, in its order, each ending in the end-of-document token.
    pub fn from_corpus(corpus: &Corpus, tokenizer: &ByteTokenizer) -> Self {
        let mut documents = Self::new();
        documents
            .tokens
            .reserve_exact(corpus.num_bytes() + corpus.documents().len());
        for document in corpus.documents() {
            tokenizer.encode(&document.text, &mut documents.tokens);
            documents.tokens.push(ByteTokenizer::END_OF_DOCUMENT);
            documents.offsets.push(documents.tokens.len());
        }
        documents
    }

    /// Appends a document as it is, without adding an end-of-document token.
    pub fn push(&mut self, tokens: &[u16]) {
        self.tokens.extend_from_slice(tokens);
        self.offsets.push(self.tokens.len());
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
        self.tokens.len()
    }

    /// Returns the tokens of document `index`.
    ///
    /// # Panics
    /// If there is no such document.
    pub fn document(&self, index: usize) -> &[u16] {
        assert!(index < self.len(), "document {index} of {} documents", self.len());
        &self.tokens[self.offsets[index]..self.offsets[index + 1]]
    }
}

impl Default for TokenDocuments {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::corpus::Document;

    #[test]
    fn documents_keep_their_order_and_end_in_the_end_token() {
        let text = |path: &str, text: &str| Document {
            path: path.into(),
            text: text.into(),
        };
        let corpus = Corpus::from_documents(vec![text("b", "xy"), text("a", "ü")]);
        let documents = TokenDocuments::from_corpus(&corpus, &ByteTokenizer);
        assert_eq!(documents.len(), 2);
        assert_eq!(documents.num_tokens(), 6);
        assert_eq!(documents.document(0), [120, 121, 256]);
        assert_eq!(documents.document(1), [0xC3, 0xBC, 256]);
    }

    #[test]
    fn an_empty_document_can_be_pushed() {
        let mut documents = TokenDocuments::new();
        assert!(documents.is_empty());
        documents.push(&[]);
        documents.push(&[7]);
        assert_eq!(documents.len(), 2);
        assert_eq!(documents.document(0), [0u16; 0]);
        assert_eq!(documents.document(1), [7]);
    }

    #[test]
    #[should_panic(expected = "document 0 of 0 documents")]
    fn a_missing_document_is_a_panic_with_both_numbers() {
        TokenDocuments::new().document(0);
    }
}
