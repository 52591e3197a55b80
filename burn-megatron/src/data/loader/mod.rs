//! Micro-batches gathered on a thread of their own, ahead of training. Started by the training
//! program, iterated by the training loop.

use std::{
    any::Any,
    num::NonZeroUsize,
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use burn::config::Config;
use burn_megatron_data::marks::{DocumentMarking, DocumentMarks, DocumentRules};
use burn_megatron_data::samples::Samples;
use cubecl_kernels::flash_attention::Documents;

use super::{error::DataError, sampler::Sampler};

/// How far a loader runs ahead and how long training waits for it.
#[derive(Config, Debug, Copy, PartialEq, Eq)]
pub struct LoaderConfig {
    /// Micro-batches that may be ready and not yet taken.
    #[config(default = "NonZeroUsize::new(8).expect(\"8 is not zero\")")]
    pub micro_batches_ahead: NonZeroUsize,
    /// Longest wait for one micro-batch.
    #[config(default = "Duration::from_secs(60)")]
    pub timeout: Duration,
}

impl Default for LoaderConfig {
    /// Eight micro-batches and a minute: gathering one takes microseconds.
    fn default() -> Self {
        Self::new()
    }
}

/// The tokens of one micro-batch of one data-parallel rank.
#[derive(Debug, Clone, PartialEq)]
pub struct MicroBatch {
    /// Inputs, `[micro_batch_size * seq_length]`, sample by sample.
    pub tokens: Vec<i32>,
    /// The token that follows each input, `[micro_batch_size * seq_length]`.
    pub targets: Vec<i32>,
    /// How much each target counts in the loss, `[micro_batch_size * seq_length]`; all count alike if not given.
    pub loss_mask: Option<Vec<f32>>,
    /// The position of each input, `[micro_batch_size * seq_length]`; its place in its sample if not given.
    pub position_ids: Option<Vec<i32>>,
    /// The documents that the samples consist of, each of which attends to itself alone; whole samples if not given.
    pub documents: Option<Documents>,
    /// Number of each sample in training order, `[micro_batch_size]`: the same on every rank that
    /// reads the sample, whatever the layout.
    pub sample_ids: Vec<u64>,
    /// Number of samples.
    pub micro_batch_size: usize,
    /// Tokens per sample.
    pub seq_length: usize,
}

/// Yields micro-batches that another thread gathers ahead of time, up to the configured number.
///
/// The thread ends after the last micro-batch, after the first error, which is delivered in its
/// place, or when the loader is dropped, which waits for it.
#[derive(Debug)]
pub struct Loader {
    /// `None` once the thread is done.
    thread: Option<LoaderThread>,
    timeout: Duration,
}

/// The channel and the thread that fills it.
#[derive(Debug)]
struct LoaderThread {
    micro_batches: Receiver<Result<MicroBatch, DataError>>,
    handle: JoinHandle<()>,
}

impl Loader {
    /// Starts the thread that reads the samples of `sampler` from `dataset`.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(dataset: Arc<dyn Samples>, sampler: Sampler, config: LoaderConfig) -> Result<Self, DataError> {
        Self::start_marked(dataset, sampler, None, config)
    }

    /// As [`start`](Self::start); `marking` says what starts again where documents end within the samples.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_marked(
        dataset: Arc<dyn Samples>,
        sampler: Sampler,
        marking: Option<DocumentMarking>,
        config: LoaderConfig,
    ) -> Result<Self, DataError> {
        let gather = move |sample_ids| MicroBatch::gather(&*dataset, sample_ids, marking);
        Self::spawn(sampler.map(gather), config)
    }

    /// Starts the thread that sends what `source` yields.
    fn spawn(
        source: impl Iterator<Item = Result<MicroBatch, DataError>> + Send + 'static,
        config: LoaderConfig,
    ) -> Result<Self, DataError> {
        let (sender, micro_batches) = mpsc::sync_channel(config.micro_batches_ahead.get());
        let handle = thread::Builder::new()
            .name("data-loader".into())
            .spawn(move || send_all(source, &sender))
            .map_err(|source| DataError::LoaderStart { source })?;
        Ok(Self {
            thread: Some(LoaderThread { micro_batches, handle }),
            timeout: config.timeout,
        })
    }
}

impl Iterator for Loader {
    type Item = Result<MicroBatch, DataError>;

    /// Waits for the next micro-batch.
    ///
    /// # Errors
    /// A sample cannot be read, the thread panicked, or the timeout passed; a later call waits
    /// again after a timeout and returns `None` after another error.
    fn next(&mut self) -> Option<Self::Item> {
        let thread = self.thread.as_ref()?;
        match thread.micro_batches.recv_timeout(self.timeout) {
            Ok(micro_batch) => Some(micro_batch),
            Err(RecvTimeoutError::Timeout) => Some(Err(DataError::LoaderTimeout { timeout: self.timeout })),
            Err(RecvTimeoutError::Disconnected) => {
                let handle = self.thread.take()?.handle;
                let panic = handle.join().err()?;
                let message = panic_message(&*panic);
                Some(Err(DataError::LoaderPanicked { message }))
            }
        }
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        if let Some(LoaderThread { micro_batches, handle }) = self.thread.take() {
            // Without a receiver the thread's next send fails, which ends it: at most one more micro-batch is gathered.
            // A panic of the thread has no caller left to be reported to.
            drop(micro_batches);
            let _ = handle.join();
        }
    }
}

impl MicroBatch {
    /// Reads the samples from `dataset`. A target that a sample does not have, as it ends before, does not count in the
    /// loss.
    fn gather(
        dataset: &dyn Samples,
        sample_ids: Vec<u64>,
        marking: Option<DocumentMarking>,
    ) -> Result<Self, DataError> {
        let (micro_batch_size, seq_length) = (sample_ids.len(), dataset.seq_length());
        let num_tokens = micro_batch_size * seq_length;
        let mut micro_batch = Self {
            tokens: Vec::with_capacity(num_tokens),
            targets: Vec::with_capacity(num_tokens),
            loss_mask: None,
            position_ids: None,
            documents: None,
            sample_ids,
            micro_batch_size,
            seq_length,
        };
        let mut marks = DocumentMarks::default();
        let mut sample = Vec::with_capacity(seq_length + 1);
        for (i, &id) in micro_batch.sample_ids.iter().enumerate() {
            sample.clear();
            let read = dataset.read_sample(id, &mut sample)?;
            if read <= seq_length {
                sample.resize(seq_length + 1, 0);
                let mask = micro_batch.loss_mask.get_or_insert_with(|| vec![1.0; num_tokens]);
                mask[i * seq_length + read.saturating_sub(1)..(i + 1) * seq_length].fill(0.0);
            }
            if let Some(marking) = marking {
                marks.push(&sample[..seq_length], marking.end_of_document, marking.rules);
            }
            // Numbers of tokens are below 2^31, as the model's vocabulary is.
            let signed = sample.iter().map(|&token| token.cast_signed());
            micro_batch.tokens.extend(signed.clone().take(seq_length));
            micro_batch.targets.extend(signed.skip(1));
        }
        if let Some(marking) = marking {
            micro_batch.mark(marks, marking.rules);
        }
        Ok(micro_batch)
    }

    fn mark(&mut self, marks: DocumentMarks, rules: DocumentRules) {
        let DocumentMarks {
            position_ids,
            document_starts,
            loss_mask,
        } = marks;
        if rules.reset_position_ids {
            // They are below the length of a sample.
            self.position_ids = Some(position_ids.into_iter().map(u32::cast_signed).collect());
        }
        if rules.reset_attention_mask {
            let documents = Documents::from_starts(self.seq_length, &document_starts);
            self.documents = Some(documents.expect("marks are starts of documents"));
        }
        if rules.eod_mask_loss {
            let of_samples = self.loss_mask.get_or_insert_with(|| vec![1.0; loss_mask.len()]);
            for (weight, of_mark) in of_samples.iter_mut().zip(loss_mask) {
                *weight *= of_mark;
            }
        }
    }
}

/// Sends until the source ends, an error was sent, or no one receives any more.
fn send_all(
    source: impl Iterator<Item = Result<MicroBatch, DataError>>,
    sender: &SyncSender<Result<MicroBatch, DataError>>,
) {
    for micro_batch in source {
        let failed = micro_batch.is_err();
        if sender.send(micro_batch).is_err() || failed {
            break;
        }
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".into())
}

#[cfg(test)]
mod tests;
