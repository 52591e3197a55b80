//! Checkpoints: arrays by global name and logical shape, written by all ranks in parallel, read in any other layout.
//!
//! Knows names, boxes, bytes and files; nothing of models and optimizers.
//!
//! A checkpoint is a folder `iter_0000020` in the folder that a run saves to:
//!
//! - `rank_00003.safetensors`: what rank 3 stores, in parts. A part is a range of a rank's local array, which is a
//!   box of the logical array; a box that is stored whole has its shape, one that is cut (a sharded optimizer cuts
//!   anywhere) is flat. Padding is not stored.
//! - `index.json`: for each array its logical shape, its type and where its parts are; for each file its size and the
//!   checksums of its blocks; the run's state; and its own checksum.
//!
//! A save writes into a hidden folder, brings everything down to the disk, the index last, and renames. So the folder
//! of an iteration is either whole or not there, and there is no pointer to the latest that could be wrong: the latest
//! is the highest. The pieces, in the order of a save: `plan` (pure: what each rank writes, and whether that is every
//! element exactly once), `agreement` (the ranks learn of each other's failures), `shard`, `index`, `folder`.

mod agreement;
mod checksum;
mod contents;
mod convert;
mod coverage;
mod direct;
mod error;
mod file;
mod folder;
mod index;
mod part;
mod plan;
mod reader;
mod region;
mod save;
mod shard;
#[cfg(test)]
mod tests;
mod writer;

pub use contents::{StoredArray, StoredFile, StoredPart};
pub use convert::{UnshardedCheckpoint, WholeArray};
pub use error::CheckpointError;
pub use file::open_file;
pub use index::FORMAT_VERSION;
pub use part::{ArrayData, ArrayPart};
pub use reader::{Checkpoint, ReadConfig};
/// The state of a run, as [`CheckpointWriter::save`] takes it, and the macro that makes one.
pub use serde_json::{Value, json};
pub use writer::{CheckpointConfig, CheckpointWriter};
