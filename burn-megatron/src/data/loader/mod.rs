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

use super::{BatchSource, MicroBatch, error::DataError, sampler::Sampler};

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
    /// Starts the thread that gathers the samples of `sampler` from `source`.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(source: Arc<dyn BatchSource>, sampler: Sampler, config: LoaderConfig) -> Result<Self, DataError> {
        Self::spawn(sampler.map(move |sample_ids| source.gather(sample_ids)), config)
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
