//! `Batch`: documents on their way from the reader to a worker; `BatchSink` gathers them.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use super::InputFile;
use crate::preprocess::budget::ByteBudget;
use crate::preprocess::{BadDocument, InputFormat, PreprocessError};

/// Text after which a batch is sent.
const BATCH_BYTES: usize = 512 << 10;
/// Documents after which a batch is sent, however short they are.
const BATCH_DOCUMENTS: usize = 4096;

/// How a document's bytes hold its texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::preprocess) enum Fields {
    /// One text for each key, one after another.
    Texts,
    /// A JSON object.
    Json,
}

/// A document of a batch.
#[derive(Debug)]
pub(in crate::preprocess) struct Record {
    /// Line or row in its file, from 1 on.
    pub(in crate::preprocess) number: u64,
    /// What the reader already found wrong with it. Then it has no fields.
    pub(in crate::preprocess) problem: Option<String>,
}

/// Documents of one file.
#[derive(Debug)]
pub(in crate::preprocess) struct Batch {
    /// Its place among all batches.
    pub(in crate::preprocess) number: u64,
    pub(in crate::preprocess) path: Arc<Path>,
    pub(in crate::preprocess) fields: Fields,
    pub(in crate::preprocess) unit: &'static str,
    pub(in crate::preprocess) records: Vec<Record>,
    /// What has been taken of the budget for this batch.
    pub(in crate::preprocess) cost: usize,
    bytes: Vec<u8>,
    /// Ends of the fields of all records.
    ends: Vec<usize>,
}

impl Batch {
    fn new(number: u64, path: Arc<Path>, format: InputFormat) -> Self {
        let fields = if format == InputFormat::Jsonl {
            Fields::Json
        } else {
            Fields::Texts
        };
        let unit = if format == InputFormat::Parquet { "row" } else { "line" };
        Self {
            number,
            path,
            fields,
            unit,
            records: vec![],
            cost: 0,
            bytes: vec![],
            ends: vec![],
        }
    }

    /// Returns all fields of all records without a problem.
    pub(in crate::preprocess) fn fields(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
    }

    /// Returns the description of a bad record.
    pub(in crate::preprocess) fn bad(&self, number: u64, reason: String) -> BadDocument {
        BadDocument {
            path: self.path.clone(),
            unit: self.unit,
            number,
            reason,
        }
    }
}

/// Gathers documents, and sends batches when there is room for them.
pub(in crate::preprocess) struct BatchSink<'a> {
    sender: SyncSender<Batch>,
    budget: &'a ByteBudget,
    max_document_bytes: usize,
    batch: Batch,
}

impl<'a> BatchSink<'a> {
    pub(in crate::preprocess) fn new(
        sender: SyncSender<Batch>,
        budget: &'a ByteBudget,
        max_document_bytes: usize,
    ) -> Self {
        let batch = Batch::new(0, Path::new("").into(), InputFormat::Text);
        Self {
            sender,
            budget,
            max_document_bytes,
            batch,
        }
    }

    /// Returns the longest document, in bytes, that is to be pushed.
    pub(super) fn max_document_bytes(&self) -> usize {
        self.max_document_bytes
    }

    /// Returns the file whose documents are being gathered.
    pub(super) fn path(&self) -> Arc<Path> {
        self.batch.path.clone()
    }

    /// Returns the bytes of the batch: what is appended is the next field.
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.batch.bytes
    }

    /// Returns the bytes that follow the last field.
    pub(super) fn pending(&self) -> usize {
        self.batch.bytes.len() - self.batch.ends.last().copied().unwrap_or(0)
    }

    /// Takes away the bytes that follow the last field.
    pub(super) fn clear_pending(&mut self) {
        self.batch.bytes.truncate(self.batch.ends.last().copied().unwrap_or(0));
    }

    /// Makes the bytes that follow the last field a field.
    pub(super) fn end_field(&mut self) {
        self.batch.ends.push(self.batch.bytes.len());
    }

    /// Makes the fields since the last document one.
    pub(super) fn end_document(&mut self, number: u64) -> Result<(), PreprocessError> {
        self.batch.records.push(Record { number, problem: None });
        self.send_if_full()
    }

    /// Makes the bytes that follow the last field, without an end of a line, a document, unless they are over the
    /// limit.
    pub(super) fn end_lines(&mut self, number: u64) -> Result<(), PreprocessError> {
        let pending = self.pending();
        let text = &self.batch.bytes[self.batch.bytes.len() - pending..];
        let trimmed = text
            .strip_suffix(b"\n")
            .map_or(text, |text| text.strip_suffix(b"\r").unwrap_or(text))
            .len();
        if trimmed > self.max_document_bytes {
            self.clear_pending();
            return self.push_too_long(number);
        }
        self.batch.bytes.truncate(self.batch.bytes.len() - (pending - trimmed));
        self.end_field();
        self.end_document(number)
    }

    /// Adds a document without fields that cannot be taken.
    pub(super) fn push_bad(&mut self, number: u64, reason: String) -> Result<(), PreprocessError> {
        self.batch.records.push(Record {
            number,
            problem: Some(reason),
        });
        self.send_if_full()
    }

    /// Adds a document that is over the limit.
    pub(super) fn push_too_long(&mut self, number: u64) -> Result<(), PreprocessError> {
        self.push_bad(
            number,
            format!(
                "longer than the limit of {} bytes for a document",
                self.max_document_bytes
            ),
        )
    }

    /// Begins the documents of a file.
    pub(super) fn begin_file(&mut self, file: &InputFile) {
        self.batch = Batch::new(self.batch.number, file.path.as_path().into(), file.format);
    }

    fn send_if_full(&mut self) -> Result<(), PreprocessError> {
        if self.batch.bytes.len() >= BATCH_BYTES || self.batch.records.len() >= BATCH_DOCUMENTS {
            self.send()?;
        }
        Ok(())
    }

    /// Sends what the file has so far.
    pub(super) fn send(&mut self) -> Result<(), PreprocessError> {
        if self.batch.records.is_empty() {
            return Ok(());
        }
        let batch = Batch {
            number: self.batch.number + 1,
            path: self.batch.path.clone(),
            bytes: Vec::with_capacity(BATCH_BYTES),
            records: vec![],
            ends: vec![],
            ..self.batch
        };
        let mut full = std::mem::replace(&mut self.batch, batch);
        full.bytes.shrink_to(2 * full.bytes.len());
        full.cost = full.bytes.capacity().max(BATCH_BYTES);
        // The rest of a stopped run is not read.
        if !self.budget.take(full.cost) || self.sender.send(full).is_err() {
            return Err(PreprocessError::Stopped);
        }
        Ok(())
    }
}
