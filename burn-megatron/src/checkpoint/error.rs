//! What can go wrong with checkpoints: [`CheckpointError`], and the causes that ranks tell each other.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::collectives::CollectiveError;

/// Why a checkpoint could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The operating system refused something.
    #[error("cannot {action} {path}: {source}", path = .path.display())]
    File {
        /// What was tried: `open`, `write`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A GPU has not done what it was given: what would be saved cannot be trusted.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    LostWork(#[from] crate::cuda::LostWork),
    /// Something else is where a folder should be.
    #[error("{path} is not a folder: expected {expected}", path = .path.display())]
    NotAFolder {
        /// What is there.
        path: PathBuf,
        /// What should be there.
        expected: &'static str,
    },
    /// A folder without checkpoints.
    #[error(
        "no checkpoint in {directory}: expected a folder named like iter_0000020 with an index.json in it",
        directory = .directory.display()
    )]
    NoCheckpoint {
        /// The folder that was searched.
        directory: PathBuf,
    },
    /// A folder that is no checkpoint, or one whose index is gone.
    #[error("{path} is no complete checkpoint: expected index.json in it", path = .path.display())]
    NoIndex {
        /// The folder.
        path: PathBuf,
    },
    /// The latest of a folder of checkpoints has no index. A save names a folder when it is whole: something has
    /// happened to it since.
    #[error(
        "{path}, the latest checkpoint, is damaged: its index.json is missing; bring it back, or move the folder away \
         to resume from the checkpoint before it",
        path = .path.display()
    )]
    Damaged {
        /// The folder of that iteration.
        path: PathBuf,
    },
    /// An index that is not what a save writes.
    #[error("{path} is no index of a checkpoint: {what}", path = .path.display())]
    IndexBroken {
        /// The index.
        path: PathBuf,
        /// What is wrong, and what was expected.
        what: String,
    },
    /// A checkpoint under the name of another iteration.
    #[error(
        "{path} is of iteration {named} by its name and of iteration {found} by its index: has it been renamed?",
        path = .path.display()
    )]
    Renamed {
        /// The checkpoint.
        path: PathBuf,
        /// The iteration that it was saved at.
        found: u64,
        /// The iteration of its name.
        named: u64,
    },
    /// A checkpoint of a newer version of this library.
    #[error(
        "{path} has format version {version}: expected at most {supported}; a newer burn-megatron reads it",
        path = .path.display()
    )]
    NewerFormat {
        /// The index.
        path: PathBuf,
        /// Its version.
        version: u64,
        /// The newest version that is understood.
        supported: u64,
    },
    /// A shard is gone.
    #[error("shard {path} is missing: expected {bytes} bytes, written by rank {rank}", path = .path.display())]
    ShardMissing {
        /// The shard.
        path: PathBuf,
        /// Its size, by the index.
        bytes: u64,
        /// The rank that wrote it.
        rank: usize,
    },
    /// A shard was cut short, or has grown.
    #[error("shard {path} has {found} bytes: expected {expected}", path = .path.display())]
    ShardSize {
        /// The shard.
        path: PathBuf,
        /// Its size, by the index.
        expected: u64,
        /// Its size.
        found: u64,
    },
    /// A shard that is not what its index says.
    #[error("shard {path} does not fit its index: {what}", path = .path.display())]
    ShardBroken {
        /// The shard.
        path: PathBuf,
        /// What is wrong, and what was expected.
        what: String,
    },
    /// Bytes have changed since they were written.
    #[error(
        "shard {path} has been altered: bytes {begin} to {end} have checksum {found:016x}, expected {expected:016x}",
        path = .path.display()
    )]
    Altered {
        /// The shard.
        path: PathBuf,
        /// The first byte of the block.
        begin: u64,
        /// The end of the block, exclusive.
        end: u64,
        /// The checksum, by the index.
        expected: u64,
        /// The checksum of what is there.
        found: u64,
    },
    /// An array that the checkpoint does not hold: that of another model, or one saved without its optimizer.
    #[error(
        "checkpoint {path} has no array {name:?} among its {count} arrays; the nearest name is {nearest:?}: is it of \
         another model?",
        path = .path.display()
    )]
    ArrayMissing {
        /// The checkpoint.
        path: PathBuf,
        /// The array that was asked for.
        name: String,
        /// How many arrays there are.
        count: usize,
        /// The name that has the longest start in common.
        nearest: String,
    },
    /// An array of another shape, such as that of another vocabulary.
    #[error("array {name:?} of checkpoint {path} has shape {stored:?}: expected {expected:?}", path = .path.display())]
    ShapeMismatch {
        /// The checkpoint.
        path: PathBuf,
        /// The array.
        name: String,
        /// The shape in the checkpoint, without padding.
        stored: Vec<usize>,
        /// The shape that was asked for.
        expected: Vec<usize>,
    },
    /// Elements that were asked for and are outside the local array.
    #[error("array {name:?} of checkpoint {path}: {what}", path = .path.display())]
    Region {
        /// The checkpoint.
        path: PathBuf,
        /// The array.
        name: String,
        /// What was asked for, and what there is.
        what: String,
    },
    /// The parts of an array do not make up the array.
    #[error("array {name:?} of checkpoint {path}: {what}", path = .path.display())]
    Coverage {
        /// The checkpoint.
        path: PathBuf,
        /// The array.
        name: String,
        /// The element, and the parts.
        what: String,
    },
    /// Another run saves to the same folder.
    #[error(
        "another run saves to {directory}: {holder}; give each run its own folder",
        directory = .directory.display()
    )]
    Locked {
        /// The folder.
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
    LaterCheckpoint {
        /// The latest checkpoint in the folder.
        later: PathBuf,
        /// The iteration that the run begins at.
        begins_at: u64,
    },
    /// What is converted would replace a checkpoint.
    #[error("{path} is there already: give another folder, or move it away", path = .path.display())]
    IsThere {
        /// The checkpoint of the same iteration.
        path: PathBuf,
    },
    /// The folder could not be prepared; the same error on every rank.
    #[error("cannot save to {directory}: {cause}", directory = .directory.display())]
    Prepare {
        /// The folder.
        directory: PathBuf,
        /// Rank, file and reason.
        cause: String,
    },
    /// A save failed on some rank; the same error on every rank. What was saved before is untouched.
    #[error(
        "checkpoint of iteration {iteration} was not saved to {directory}: {cause}", directory = .directory.display()
    )]
    Save {
        /// The iteration.
        iteration: u64,
        /// The folder of all checkpoints.
        directory: PathBuf,
        /// Rank, file and reason of the first rank that failed.
        cause: String,
    },
    /// The ranks lost each other.
    #[error("checkpoint: {0}")]
    Collective(#[from] CollectiveError),
    /// The thread of an asynchronous save panicked.
    #[error("the thread that saved the checkpoint of iteration {iteration} panicked")]
    Panicked {
        /// The iteration.
        iteration: u64,
    },
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
