//! `Encoder`: turns a batch of documents into tokens as they are stored. Each worker has one.

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::json::{self, DocumentText};
use super::source::{Batch, Fields};
use super::{BadDocument, PreprocessConfig, PreprocessError, SentenceEnds, split_sentences};
use crate::indexed_dataset::ElementType;
use crate::tokenizer::{Token, Tokenizer};

/// Tokens for which a worker keeps room between documents.
const KEPT_TOKENS: usize = 1 << 18;

/// A batch as tokens.
pub(super) struct EncodedBatch {
    pub(super) number: u64,
    /// What is to be given back to the budget.
    pub(super) cost: usize,
    /// Documents, without those that are bad.
    pub(super) documents: usize,
    /// Bytes of all fields.
    pub(super) text_bytes: u64,
    pub(super) keys: Vec<EncodedDocuments>,
    pub(super) bad: Vec<BadDocument>,
}

/// The documents of a key.
#[derive(Default)]
pub(super) struct EncodedDocuments {
    /// Tokens of all documents, as they are stored.
    pub(super) bytes: Vec<u8>,
    /// Lengths of all sequences, in tokens.
    pub(super) lengths: Vec<usize>,
    /// Sequences of each document.
    pub(super) sequences: Vec<usize>,
}

/// What a worker needs to encode.
pub(super) struct Encoder<'a> {
    config: &'a PreprocessConfig,
    tokenizer: &'a dyn Tokenizer,
    element_type: ElementType,
    end_of_document: Option<Token>,
    tokens: Vec<Token>,
    sentences: Vec<Range<usize>>,
}

impl<'a> Encoder<'a> {
    pub(super) fn new(config: &'a PreprocessConfig, tokenizer: &'a dyn Tokenizer) -> Self {
        Self {
            config,
            tokenizer,
            element_type: ElementType::for_vocabulary(tokenizer.vocabulary_size()),
            end_of_document: tokenizer.end_of_document().filter(|_| config.append_end_of_document),
            tokens: vec![],
            sentences: vec![],
        }
    }

    /// Encodes a batch. Bad documents are returned with it.
    pub(super) fn encode(&mut self, batch: &Batch) -> Result<EncodedBatch, PreprocessError> {
        let mut keys: Vec<EncodedDocuments> = vec![];
        keys.resize_with(self.config.keys.len(), EncodedDocuments::default);
        let (mut bad, mut documents, mut text_bytes) = (vec![], 0, 0);
        let mut fields = batch.fields();
        for record in &batch.records {
            if let Some(reason) = &record.problem {
                bad.push(batch.bad(record.number, reason.clone()));
                continue;
            }
            let of_record = if batch.fields == Fields::Json { 1 } else { keys.len() };
            let fields: Vec<&[u8]> = fields.by_ref().take(of_record).collect();
            text_bytes += fields.iter().map(|field| field.len() as u64).sum::<u64>();
            match self.texts(batch, record.number, &fields) {
                Ok(texts) => {
                    for (text, key) in texts.iter().zip(&mut keys) {
                        self.encode_document(text, key, &batch.path)?;
                    }
                    documents += 1;
                }
                Err(document) => bad.push(document),
            }
        }
        self.tokens.clear();
        self.tokens.shrink_to(KEPT_TOKENS);
        Ok(EncodedBatch {
            number: batch.number,
            cost: batch.cost,
            documents,
            text_bytes,
            keys,
            bad,
        })
    }

    /// Returns a document's text for each key.
    fn texts<'t>(&self, batch: &Batch, number: u64, fields: &[&'t [u8]]) -> Result<Vec<DocumentText<'t>>, BadDocument> {
        let mut texts = Vec::with_capacity(fields.len());
        for field in fields {
            texts
                .push(std::str::from_utf8(field).map_err(|error| not_utf8(batch, number, field, error.valid_up_to()))?);
        }
        match batch.fields {
            Fields::Texts => Ok(texts
                .into_iter()
                .map(|text| DocumentText::Whole(Cow::Borrowed(text)))
                .collect()),
            Fields::Json => json::texts(texts[0], &self.config.keys).map_err(|reason| batch.bad(number, reason)),
        }
    }

    /// Appends the sequences of a document. One without tokens is left out, as in Megatron-LM, but the document is
    /// there.
    fn encode_document(
        &mut self,
        text: &DocumentText<'_>,
        encoded: &mut EncodedDocuments,
        path: &Arc<Path>,
    ) -> Result<(), PreprocessError> {
        self.tokens.clear();
        let before = encoded.lengths.len();
        match (text, self.config.sentences) {
            (DocumentText::Whole(text), None) => self.encode_sequence(text, encoded),
            (DocumentText::Whole(text), Some(ends)) => self.encode_sentences(text, ends, encoded),
            (DocumentText::Sentences(sentences), _) => {
                sentences
                    .iter()
                    .for_each(|sentence| self.encode_sequence(sentence, encoded));
            }
        }
        if let (Some(end), Some(last)) = (self.end_of_document, encoded.lengths[before..].last_mut()) {
            self.tokens.push(end);
            *last += 1;
        }
        encoded.sequences.push(encoded.lengths.len() - before);
        self.element_type
            .encode(&self.tokens, &mut encoded.bytes)
            .map_err(|token| PreprocessError::Token {
                token,
                element_type: self.element_type,
                vocabulary_size: self.tokenizer.vocabulary_size(),
                path: path.to_path_buf(),
            })
    }

    fn encode_sentences(&mut self, text: &str, ends: SentenceEnds, encoded: &mut EncodedDocuments) {
        let mut sentences = std::mem::take(&mut self.sentences);
        sentences.clear();
        split_sentences(text, ends, &mut sentences);
        for sentence in &sentences {
            self.encode_sequence(&text[sentence.clone()], encoded);
        }
        self.sentences = sentences;
    }

    fn encode_sequence(&mut self, text: &str, encoded: &mut EncodedDocuments) {
        let before = self.tokens.len();
        self.tokenizer.encode(text, &mut self.tokens);
        if self.tokens.len() > before {
            encoded.lengths.push(self.tokens.len() - before);
        }
    }
}

/// Names the line, if lines are counted, on which the first bad byte is.
fn not_utf8(batch: &Batch, number: u64, field: &[u8], valid: usize) -> BadDocument {
    if batch.unit != "line" {
        return batch.bad(number, format!("not UTF-8 at byte {} of the text", valid + 1));
    }
    let newlines = memchr::memchr_iter(b'\n', &field[..valid]).count();
    let begin = memchr::memrchr(b'\n', &field[..valid]).map_or(0, |newline| newline + 1);
    batch.bad(
        number + newlines as u64,
        format!("not UTF-8 at byte {} of the line", valid - begin + 1),
    )
}
