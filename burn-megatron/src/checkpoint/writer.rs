//! [`CheckpointWriter`]: saves a run's checkpoints, synchronously or in the background.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use burn::config::Config;

use super::Value;
use super::agreement::agree;
use super::error::{Cause, CheckpointError};
use super::folder::SaveDirectory;
use super::part::ArrayPart;
use super::save::Saver;
use crate::collectives::ProcessGroup;

/// How a run saves. The same on every rank.
#[derive(Config, Debug, PartialEq)]
pub struct CheckpointConfig {
    /// The number of checkpoints that stay: after each save the oldest beyond it are removed. Those of iterations above
    /// the one just saved do not count, and stay. None keeps all.
    pub keep: Option<usize>,
    /// The layout of the ranks, for people who look at the checkpoint; loading does not need it.
    #[config(default = "Value::Null")]
    pub layout: Value,
    /// How long dropping the writer waits for a save that is under way.
    #[config(default = "Duration::from_secs(600)")]
    pub drop_timeout: Duration,
}

impl Default for CheckpointConfig {
    /// Keeps all, says nothing of the layout, and waits for ten minutes.
    fn default() -> Self {
        Self::new()
    }
}

/// Writes checkpoints into one folder, which it holds against other runs as long as it lives.
///
/// Each checkpoint is a folder of its own, `iter_0000020`, which appears by one rename when all of it is on the disk: a
/// kill at any moment leaves what was saved before, and what the killed run has left is removed by the next writer. An
/// iteration that is there already, as after a resume at an earlier one, is replaced, again by one rename. When a save
/// fails on one rank it fails on all with the same error, nothing that was there before has changed, and the writer can
/// save again: no save is kept from beginning by the failure of another.
///
/// # Communication
/// All calls are collective over the group, which should be the writer's own: an asynchronous save takes the group's
/// [calls](ProcessGroup#threads) to its own thread, and hands them over when it is done. No array crosses ranks: each
/// tells rank 0 what it stores, and its checksums. The ranks wait for the slowest disk, at most as long as
/// [`World::timeout`](crate::launch::World::timeout).
///
/// # Example
/// ```
/// use burn::tensor::{Bytes, DType};
/// use burn_megatron::checkpoint::{ArrayPart, Checkpoint, CheckpointConfig, CheckpointWriter};
/// use burn_megatron::collectives::ProcessGroup;
/// use burn_megatron::parameters::Placement;
///
/// let folder = tempfile::tempdir()?;
/// let group = ProcessGroup::single();
/// let mut writer = CheckpointWriter::new(group, folder.path(), CheckpointConfig::new())?;
/// let data = Bytes::from_elems(vec![1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
/// let part = ArrayPart::whole("weight", Placement::whole([2, 3]), DType::F32, data);
/// writer.save(20, vec![part], serde_json::json!({ "samples": 640 }))?;
///
/// let checkpoint = Checkpoint::latest(folder.path())?.expect("it has just been saved");
/// assert_eq!(checkpoint.state()["samples"], 640);
/// // The second of three columns, as a rank of another layout holds it.
/// let column = checkpoint.read("weight", &Placement::shard(&[2, 3], 1, 1, 3), 0..2)?;
/// assert_eq!(bytemuck::cast_slice::<u8, f32>(&column.bytes), [2.0, 5.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct CheckpointWriter {
    saver: Arc<Saver>,
    under_way: Option<UnderWay>,
    /// The iteration of an asynchronous save that panicked.
    panicked: Option<u64>,
    drop_timeout: Duration,
}

/// A save on its own thread.
#[derive(Debug)]
struct UnderWay {
    iteration: u64,
    outcome: Receiver<Result<(), CheckpointError>>,
}

impl CheckpointWriter {
    /// Makes the folder if it is not there, takes its lock, and removes what killed runs have left in it.
    ///
    /// # Errors
    /// Another run saves to the folder; it cannot be made or written to; something else is in its place. The same on
    /// every rank.
    pub fn new(
        group: ProcessGroup,
        directory: impl Into<PathBuf>,
        options: CheckpointConfig,
    ) -> Result<Self, CheckpointError> {
        let directory = directory.into();
        let held = match (group.rank(), options.keep) {
            (_, Some(0)) => Err(Cause::Other("keep must be at least 1, got 0".into())),
            (0, _) => {
                let held = SaveDirectory::hold(&directory).map(Some);
                held.map_err(|error| Cause::of(group.ranks()[0], error))
            }
            _ => Ok(None),
        };
        let held = agree(&group, held)?.map_err(|cause| cause.of_preparing(&directory))?;
        let saver = Saver {
            group,
            directory,
            held,
            layout: options.layout,
            keep: options.keep,
        };
        Ok(Self {
            saver: Arc::new(saver),
            under_way: None,
            panicked: None,
            drop_timeout: options.drop_timeout,
        })
    }

    /// Says at which iteration the run begins: that of the checkpoint it has loaded, or 0.
    ///
    /// # Communication
    /// As the end of a save.
    ///
    /// # Errors
    /// The folder has a later checkpoint: whoever loads the latest would get that one, and not what this run saves. The
    /// same on every rank.
    pub fn begin_at(&self, iteration: u64) -> Result<(), CheckpointError> {
        let later = match &self.saver.held {
            Some(held) => held.later_than(iteration),
            None => Ok(None),
        };
        let outcome = match later {
            Ok(None) => Ok(()),
            Ok(Some(later)) => Err(Cause::LaterCheckpoint {
                later,
                begins_at: iteration,
            }),
            Err(error) => Err(Cause::of(self.saver.group.ranks()[0], error)),
        };
        agree(&self.saver.group, outcome)?.map_err(|cause| cause.of_preparing(&self.saver.directory))
    }

    /// Saves, and returns when the checkpoint is on the disk under its name.
    ///
    /// Over all ranks, `parts` must hold each element of each array exactly once. `state` is what the run needs to
    /// resume; that of the group's first rank is written.
    ///
    /// # Errors
    /// The first failure of any rank, the same on every rank. An asynchronous save that is under way ends first, and
    /// this one begins all the same if it has failed: its error is logged, unless it was asked for by
    /// [`wait`](Self::wait). Only a panic of its thread is an error of all later saves. When this rank's GPU has lost
    /// work, nothing is saved.
    pub fn save(&mut self, iteration: u64, parts: Vec<ArrayPart>, state: Value) -> Result<(), CheckpointError> {
        #[cfg(feature = "cuda")]
        crate::cuda::check_work()?;
        self.settle()?;
        self.saver.save(iteration, parts, state)
    }

    /// Starts a save on a thread of its own. One is under way at a time: a second waits for the first, and begins all
    /// the same if that has failed.
    ///
    /// [`wait`](Self::wait) returns the outcome, which is the same on every rank. A save always begins, on every rank.
    /// A failure that no caller has asked for when the next save begins, or when the writer is dropped, is logged as an
    /// error.
    ///
    /// # Errors
    /// The save has failed at once: it runs on the caller's thread where the operating system gives no other. The
    /// thread of an earlier one has panicked. This rank's GPU has lost work: then nothing is saved.
    pub fn save_start(&mut self, iteration: u64, parts: Vec<ArrayPart>, state: Value) -> Result<(), CheckpointError> {
        #[cfg(feature = "cuda")]
        crate::cuda::check_work()?;
        self.settle()?;
        let saver = self.saver.clone();
        saver.group.hand_over();
        let (sender, outcome) = mpsc::channel();
        let (give, take) = mpsc::channel();
        let thread = thread::Builder::new().name("checkpoint".into());
        let body = move || {
            if let Ok((parts, state)) = take.recv() {
                let outcome = saver.save(iteration, parts, state);
                saver.group.hand_over();
                // The receiver is gone once the writer has been dropped and its wait has timed out.
                let _ = sender.send(outcome);
            }
        };
        match thread.spawn(body) {
            Ok(_) => {
                give.send((parts, state)).expect("the thread waits for it");
                self.under_way = Some(UnderWay { iteration, outcome });
                Ok(())
            }
            // The other ranks have begun: take part, if slowly.
            Err(error) => {
                tracing::warn!(%error, "no thread for an asynchronous save: training waits for it");
                self.saver.save(iteration, parts, state)
            }
        }
    }

    /// Waits for the asynchronous save that is under way, or has ended since the last call, if there is one.
    ///
    /// # Errors
    /// Its error, once.
    pub fn wait(&mut self) -> Result<(), CheckpointError> {
        let Some(UnderWay { iteration, outcome }) = self.under_way.take() else {
            return Ok(());
        };
        // Every wait of a save is bounded by the group's timeout.
        outcome.recv().unwrap_or_else(|_| {
            self.panicked = Some(iteration);
            Err(CheckpointError::Panicked { iteration })
        })
    }

    /// Waits as [`wait`](Self::wait) does, for a caller who wants to save again in any case: a rank that did not begin
    /// would leave the others waiting.
    ///
    /// # Errors
    /// The thread of a save has panicked, now or before: the other ranks are in the midst of that save, and would take
    /// what this one says of another for its part in it.
    fn settle(&mut self) -> Result<(), CheckpointError> {
        if let Err(error) = self.wait() {
            tracing::error!(%error, "an asynchronous save has failed");
        }
        match self.panicked {
            None => Ok(()),
            Some(iteration) => Err(CheckpointError::Panicked { iteration }),
        }
    }

    /// The folder of all checkpoints.
    pub fn directory(&self) -> &Path {
        &self.saver.directory
    }
}

impl Drop for CheckpointWriter {
    fn drop(&mut self) {
        let Some(UnderWay { iteration, outcome }) = self.under_way.take() else {
            return;
        };
        match outcome.recv_timeout(self.drop_timeout) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "the last checkpoint was not saved"),
            Err(RecvTimeoutError::Disconnected) => tracing::error!(iteration, "the thread of the last save panicked"),
            Err(RecvTimeoutError::Timeout) => {
                tracing::error!(iteration, timeout = ?self.drop_timeout, "the last save is still under way: left \
                                                                          alone");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Checkpoint;

    #[test]
    fn no_save_begins_after_one_that_panicked() {
        let folder = tempfile::TempDir::new().unwrap();
        let options = CheckpointConfig::new();
        let mut writer = CheckpointWriter::new(ProcessGroup::single(), folder.path(), options).unwrap();
        let (sender, outcome) = mpsc::channel();
        writer.under_way = Some(UnderWay { iteration: 20, outcome });
        // As a thread does that unwinds.
        drop(sender);
        for outcome in [
            writer.save(30, Vec::new(), Value::Null),
            writer.save_start(30, Vec::new(), Value::Null),
            writer.save(30, Vec::new(), Value::Null),
        ] {
            let error = outcome.unwrap_err();
            assert!(matches!(error, CheckpointError::Panicked { iteration: 20 }), "{error}");
        }
        assert!(Checkpoint::latest(folder.path()).unwrap().is_none());
    }
}
