//! `Workers`: threads that load a rank's batches ahead, taken in their order.

use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use burn::data::dataset::DatasetError;

use super::Epoch;

/// Batches that a worker may have ready and not yet handed over.
const BATCHES_AHEAD: usize = 2;

/// Threads of which number w of n loads the batches w, w + n, w + 2n, ..., each into a channel of its own: so batches
/// come in their order, however long each takes.
pub(super) struct Workers<O> {
    workers: Vec<Worker<O>>,
}

struct Worker<O> {
    /// None once the thread is to end.
    batches: Option<Receiver<O>>,
    /// None once it has been joined.
    thread: Option<JoinHandle<()>>,
}

impl<O: Send + 'static> Workers<Result<O, DatasetError>> {
    /// Starts the threads.
    ///
    /// # Panics
    /// When the system refuses a thread.
    pub(super) fn start<I>(epoch: &Epoch<I, O>, count: usize) -> Self
    where
        I: Send + Sync + 'static,
    {
        let start = |number: usize| {
            let (sender, batches) = sync_channel(BATCHES_AHEAD);
            let epoch = epoch.clone();
            let thread = Builder::new()
                .name(format!("shard-loader-{number}"))
                .spawn(move || load_every(&epoch, number, count, &sender))
                .expect("the system has room for a thread");
            Worker {
                batches: Some(batches),
                thread: Some(thread),
            }
        };
        Self {
            workers: (0..count).map(start).collect(),
        }
    }
}

impl<O> Workers<O> {
    /// Waits for the next batch, by its number; none after the last.
    ///
    /// # Panics
    /// Passes on a panic of the thread that loads it.
    pub(super) fn take(&mut self, batch: usize) -> Option<O> {
        let number = batch % self.workers.len();
        let worker = &mut self.workers[number];
        match worker.batches.as_ref()?.recv() {
            Ok(loaded) => Some(loaded),
            Err(_) => {
                worker.batches = None;
                if let Some(Err(panic)) = worker.thread.take().map(JoinHandle::join) {
                    resume_unwind(panic);
                }
                None
            }
        }
    }
}

impl<O> Drop for Workers<O> {
    fn drop(&mut self) {
        // Without a receiver a thread's next send fails, which ends it.
        for worker in &mut self.workers {
            worker.batches = None;
        }
        for thread in self.workers.iter_mut().filter_map(|worker| worker.thread.take()) {
            // A panic in batches that are no longer wanted has no caller to be reported to.
            let _ = thread.join();
        }
    }
}

/// Loads every `step`th batch from `first` on, until the batches end or the receiver is gone.
fn load_every<I, O>(epoch: &Epoch<I, O>, first: usize, step: usize, sender: &SyncSender<Result<O, DatasetError>>) {
    let mut batch = first;
    while let Some(loaded) = epoch.load(batch) {
        if sender.send(loaded).is_err() {
            return;
        }
        batch += step;
    }
}
