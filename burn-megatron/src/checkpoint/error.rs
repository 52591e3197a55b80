//! What can go wrong with checkpoints: [`CheckpointError`], and the causes that ranks tell each other.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::collectives::CollectiveError;

/// Why a checkpoint could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say it")]
pub enum CheckpointError {
    /// The operating system refused something.
    #[error("cannot {action} {path}: {source}", path = .path.display())]
    File {
        /// What was tried: `open`, `write`.
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// A GPU has not done what it was given: what would be saved cannot be trusted.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    LostWork(#[from] crate::cuda::LostWork),
    #[error("{path} is not a folder: expected {expected}", path = .path.display())]
    NotAFolder { path: PathBuf, expected: &'static str },
    #[error(
        "no checkpoint in {directory}: expected a folder named like iter_0000020 with an index.json in it",
        directory = .directory.display()
    )]
    NoCheckpoint { directory: PathBuf },
    /// A folder that is no checkpoint, or one whose index is gone.
    #[error("{path} is no complete checkpoint: expected index.json in it", path = .path.display())]
    NoIndex { path: PathBuf },
    /// The latest of a folder of checkpoints has no index. A save names a folder when it is whole: something has
    /// happened to it since.
    #[error(
        "{path}, the latest checkpoint, is damaged: its index.json is missing; bring it back, or move the folder away \
         to resume from the checkpoint before it",
        path = .path.display()
    )]
    Damaged { path: PathBuf },
    /// An index that is not what a save writes.
    #[error("{path} is no index of a checkpoint: {what}", path = .path.display())]
    IndexBroken { path: PathBuf, what: String },
    #[error(
        "{path} is of iteration {named} by its name and of iteration {found} by its index: has it been renamed?",
        path = .path.display()
    )]
    Renamed { path: PathBuf, found: u64, named: u64 },
    #[error(
        "{path} has format version {version}: expected at most {supported}; a newer burn-megatron reads it",
        path = .path.display()
    )]
    NewerFormat {
        path: PathBuf,
        version: u64,
        supported: u64,
    },
    #[error("shard {path} is missing: expected {bytes} bytes, written by rank {rank}", path = .path.display())]
    ShardMissing { path: PathBuf, bytes: u64, rank: usize },
    /// A shard was cut short, or has grown.
    #[error("shard {path} has {found} bytes: expected {expected}", path = .path.display())]
    ShardSize { path: PathBuf, expected: u64, found: u64 },
    /// A shard that is not what its index says.
    #[error("shard {path} does not fit its index: {what}", path = .path.display())]
    ShardBroken { path: PathBuf, what: String },
    #[error(
        "shard {path} has been altered: bytes {begin} to {end} have checksum {found:016x}, expected {expected:016x}",
        path = .path.display()
    )]
    Altered {
        path: PathBuf,
        begin: u64,
        /// The end of the block, exclusive.
        end: u64,
        expected: u64,
        found: u64,
    },
    /// An array that the checkpoint does not hold: that of another model, or one saved without its optimizer.
    #[error(
        "checkpoint {path} has no array {name:?} among its {count} arrays; the nearest name is {nearest:?}: is it of \
         another model?",
        path = .path.display()
    )]
    ArrayMissing {
        path: PathBuf,
        name: String,
        count: usize,
        /// The name that has the longest start in common.
        nearest: String,
    },
    /// An array of another shape, such as that of another vocabulary.
    #[error("array {name:?} of checkpoint {path} has shape {stored:?}: expected {expected:?}", path = .path.display())]
    ShapeMismatch {
        path: PathBuf,
        name: String,
        /// The shape in the checkpoint, without padding.
        stored: Vec<usize>,
        expected: Vec<usize>,
    },
    /// Elements that were asked for and are outside the local array.
    #[error("array {name:?} of checkpoint {path}: {what}", path = .path.display())]
    Region { path: PathBuf, name: String, what: String },
    /// The parts of an array do not make up the array.
    #[error("array {name:?} of checkpoint {path}: {what}", path = .path.display())]
    Coverage { path: PathBuf, name: String, what: String },
    #[error(
        "another run saves to {directory}: {holder}; give each run its own folder",
        directory = .directory.display()
    )]
    Locked {
        directory: PathBuf,
        /// Process and host, as they stand in the lock file.
        holder: String,
    },
    /// The folder to save to has a checkpoint that the run has not come to yet.
    #[error(
        "{later} is later than iteration {begins_at}, at which this run begins, and would be taken for its latest; \
         save to another folder, resume from that checkpoint, or move it and the other later ones away",
        later = .later.display()
    )]
    LaterCheckpoint { later: PathBuf, begins_at: u64 },
    /// What is converted would replace a checkpoint.
    #[error("{path} is there already: give another folder, or move it away", path = .path.display())]
    IsThere { path: PathBuf },
    /// The folder could not be prepared; the same error on every rank.
    #[error("cannot save to {directory}: {cause}", directory = .directory.display())]
    Prepare {
        directory: PathBuf,
        /// Rank, file and reason.
        cause: String,
    },
    /// A save failed on some rank; the same error on every rank. What was saved before is untouched.
    #[error(
        "checkpoint of iteration {iteration} was not saved to {directory}: {cause}", directory = .directory.display()
    )]
    Save {
        iteration: u64,
        directory: PathBuf,
        /// Rank, file and reason of the first rank that failed.
        cause: String,
    },
    /// The ranks lost each other.
    #[error("checkpoint: {0}")]
    Collective(#[from] CollectiveError),
    /// The thread of an asynchronous save panicked.
    #[error("the thread that saved the checkpoint of iteration {iteration} panicked")]
    Panicked { iteration: u64 },
}

impl CheckpointError {
    /// Returns a function that says what was tried with which path.
    pub(super) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| CheckpointError::File { action, path, source }
    }
}

/// Why a rank cannot continue, as it reports to the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Cause {
    /// Another run holds the folder.
    Locked {
        /// Process and host.
        holder: String,
    },
    /// The folder has a checkpoint that is later than the run's beginning.
    LaterCheckpoint {
        /// That checkpoint.
        later: PathBuf,
        /// The iteration that the run begins at.
        begins_at: u64,
    },
    /// Anything else, in words that name the rank.
    Other(String),
}

impl Cause {
    /// Returns an error of one rank as the others get to know it.
    pub fn of(rank: usize, error: CheckpointError) -> Self {
        match error {
            CheckpointError::Locked { holder, .. } => Cause::Locked { holder },
            error => Cause::Other(format!("rank {rank}: {error}")),
        }
    }

    /// Returns the error of [`CheckpointWriter::new`](super::CheckpointWriter::new).
    pub fn of_preparing(self, directory: &Path) -> CheckpointError {
        let directory = directory.to_owned();
        match self {
            Cause::Locked { holder } => CheckpointError::Locked { directory, holder },
            Cause::LaterCheckpoint { later, begins_at } => CheckpointError::LaterCheckpoint { later, begins_at },
            Cause::Other(cause) => CheckpointError::Prepare { directory, cause },
        }
    }

    /// Returns the error of a save.
    pub fn of_saving(self, iteration: u64, directory: &Path) -> CheckpointError {
        let directory = directory.to_owned();
        match self {
            Cause::Locked { holder } => CheckpointError::Locked { directory, holder },
            Cause::LaterCheckpoint { later, begins_at } => CheckpointError::LaterCheckpoint { later, begins_at },
            Cause::Other(cause) => CheckpointError::Save {
                iteration,
                directory,
                cause,
            },
        }
    }
}
