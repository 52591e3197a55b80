//! Event files that TensorBoard reads.
//!
//! A file is a sequence of records, each a protobuf `Event` between its length and two checksums; see [`record`]. The
//! first event says `brain.Event:2`, the version of the format. [`EventFile`] writes one file; [`SummaryWriter`] does
//! so on a thread of its own, which training never waits for.
//!
//! Why no crate does it: `tensorboard-rs` had its last release in March 2022, `tfrecord` in September 2023 and `tboard`
//! in January 2024.

mod error;
mod event;
mod file;
mod histogram;
mod messages;
pub mod record;
#[cfg(test)]
mod tests;
mod writer;

pub use error::TensorBoardError;
pub use event::{Event, Value, verbatim};
pub use file::EventFile;
pub use histogram::Histogram;
pub use writer::{SummaryWriter, SummaryWriterConfig};
