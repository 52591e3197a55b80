//! `preprocess`: a reader, encoders, and a writer that keeps the order.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use super::budget::ByteBudget;
use super::encode::{EncodedBatch, Encoder};
use super::output::Outputs;
use super::source::{Batch, BatchSink, InputFile, expand, read_inputs};
use super::{BadDocument, PreprocessConfig, PreprocessError};
use crate::indexed_dataset::{DatasetTotals, ElementType};
use crate::tokenizer::Tokenizer;

/// Bytes of text between reader and writer, unless one document alone has more.
pub const IN_FLIGHT_BYTES: usize = 32 << 20;

/// Bad documents that a summary describes.
const DESCRIBED_BAD: usize = 5;

/// How often the observer is asked to stop while no batch comes.
const POLL: Duration = Duration::from_millis(100);

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Documents written.
    pub documents: u64,
    /// Bad documents left out.
    pub bad_documents: u64,
    /// Bytes of their text, decompressed, with what is around it in JSON.
    pub text_bytes: u64,
    /// Bytes of files that have been read, as they are on the disk.
    pub bytes_read: u64,
    /// Bytes of all files.
    pub bytes_total: u64,
}

/// Follows a run, from the thread that called [`preprocess`].
pub trait Observer {
    /// Called after each batch.
    fn progressed(&self, _progress: &Progress) {}

    /// Returns whether the run is to end, without files: asked several times a second.
    fn is_stopped(&self) -> bool {
        false
    }
}

/// An observer that does nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unobserved;

impl Observer for Unobserved {}

/// What a run has written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreprocessSummary {
    /// Prefix and totals of the data set of each key.
    pub datasets: Vec<(PathBuf, DatasetTotals)>,
    /// Files that were read.
    pub files: usize,
    /// Counts at the end.
    pub progress: Progress,
    /// The first of the bad documents that were left out.
    pub first_bad: Vec<BadDocument>,
}

/// Turns the documents of all inputs into data sets, and returns what has been written.
///
/// The bytes of the files depend on the inputs, the tokenizer and the configuration, but not on the number of workers.
/// The files have temporary names until they are whole.
///
/// # Errors
/// If an input cannot be read, a document is bad and not to be skipped, all documents are bad, the disk is full, or the
/// observer stops the run. No file is left, save where the error came after some keys' data sets, each of them whole,
/// were completed.
///
/// # Panics
/// If the tokenizer does.
pub fn preprocess(
    config: &PreprocessConfig,
    tokenizer: &dyn Tokenizer,
    observer: &dyn Observer,
) -> Result<PreprocessSummary, PreprocessError> {
    config.validate(tokenizer)?;
    let files = expand(config)?;
    let element_type = ElementType::for_vocabulary(tokenizer.vocabulary_size());
    let outputs = Outputs::create(config, element_type)?;
    let bytes_read = Arc::new(AtomicU64::new(0));
    let mut writer = Writer {
        config,
        observer,
        outputs,
        bytes_read: bytes_read.clone(),
        progress: Progress {
            bytes_total: files.iter().map(|file| file.bytes).sum(),
            ..Progress::default()
        },
        first_bad: vec![],
    };
    let budget = ByteBudget::new(IN_FLIGHT_BYTES);
    let workers = config.workers.get();
    let (batch_sender, batches) = sync_channel(workers);
    // Owned by the workers: when the last ends, the reader learns of it.
    let batches = Arc::new(Mutex::new(batches));
    let (encoded_sender, encoded) = sync_channel(workers);
    thread::scope(|scope| {
        let reader = scope.spawn(|| read(&files, config, &bytes_read, batch_sender, &budget));
        for _ in 0..workers {
            let (batches, encoded_sender, budget) = (batches.clone(), encoded_sender.clone(), &budget);
            scope.spawn(move || encode(&batches, &encoded_sender, Encoder::new(config, tokenizer), budget));
        }
        drop((batches, encoded_sender));
        let written = writer.write(&encoded, &budget);
        // Whoever waits to read or to hand over a batch ends.
        budget.close();
        drop(encoded);
        written?;
        match reader.join() {
            Ok(read) => read,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })?;
    writer.finish(files.len())
}

/// The reader's thread.
fn read(
    files: &[InputFile],
    config: &PreprocessConfig,
    bytes_read: &Arc<AtomicU64>,
    sender: SyncSender<Batch>,
    budget: &ByteBudget,
) -> Result<(), PreprocessError> {
    let _closing = CloseOnPanic(budget);
    read_inputs(
        files,
        config,
        bytes_read,
        &mut BatchSink::new(sender, budget, config.max_document_bytes),
    )
}

/// A worker's thread.
fn encode(
    batches: &Mutex<Receiver<Batch>>,
    sender: &SyncSender<Result<EncodedBatch, PreprocessError>>,
    mut encoder: Encoder<'_>,
    budget: &ByteBudget,
) {
    let _closing = CloseOnPanic(budget);
    loop {
        let batch = batches.lock().recv();
        let Ok(batch) = batch else { break };
        // After an error nothing more is needed.
        if budget.is_closed() || sender.send(encoder.encode(&batch)).is_err() {
            break;
        }
    }
}

/// Ends the run if its thread panics: a batch would be missing, and the reader would wait for room for ever.
struct CloseOnPanic<'a>(&'a ByteBudget);

impl Drop for CloseOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.close();
        }
    }
}

/// Writes batches in their order.
struct Writer<'a> {
    config: &'a PreprocessConfig,
    observer: &'a dyn Observer,
    outputs: Outputs,
    bytes_read: Arc<AtomicU64>,
    progress: Progress,
    first_bad: Vec<BadDocument>,
}

impl Writer<'_> {
    fn write(
        &mut self,
        encoded: &Receiver<Result<EncodedBatch, PreprocessError>>,
        budget: &ByteBudget,
    ) -> Result<(), PreprocessError> {
        let mut waiting = BTreeMap::new();
        let mut next = 0;
        loop {
            if self.observer.is_stopped() {
                return Err(PreprocessError::Stopped);
            }
            match encoded.recv_timeout(POLL) {
                Ok(batch) => {
                    let batch = batch?;
                    waiting.insert(batch.number, batch);
                }
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            while let Some(batch) = waiting.remove(&next) {
                self.write_batch(&batch)?;
                budget.give_back(batch.cost);
                next += 1;
            }
        }
    }

    fn write_batch(&mut self, batch: &EncodedBatch) -> Result<(), PreprocessError> {
        if let Some(bad) = batch.bad.first().filter(|_| !self.config.skip_bad) {
            return Err(PreprocessError::Bad(bad.clone()));
        }
        let room = DESCRIBED_BAD.saturating_sub(self.first_bad.len());
        self.first_bad.extend(batch.bad.iter().take(room).cloned());
        self.outputs.push(batch)?;
        self.progress.documents += batch.documents as u64;
        self.progress.bad_documents += batch.bad.len() as u64;
        self.progress.text_bytes += batch.text_bytes;
        self.progress.bytes_read = self.bytes_read.load(Ordering::Relaxed);
        self.observer.progressed(&self.progress);
        Ok(())
    }

    fn finish(self, files: usize) -> Result<PreprocessSummary, PreprocessError> {
        if self.observer.is_stopped() {
            return Err(PreprocessError::Stopped);
        }
        if let (0, Some(first)) = (self.progress.documents, self.first_bad.first()) {
            return Err(PreprocessError::NothingTaken {
                documents: self.progress.bad_documents,
                first: first.clone(),
            });
        }
        let progress = Progress {
            bytes_read: self.progress.bytes_total,
            ..self.progress
        };
        Ok(PreprocessSummary {
            datasets: self.outputs.finish()?,
            files,
            progress,
            first_bad: self.first_bad,
        })
    }
}
