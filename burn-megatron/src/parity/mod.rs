//! Judges whether a sharded run computes what the one-rank run does.
//!
//! Tolerances come from here and from nowhere else.

mod compare;
mod perturb;
#[cfg(feature = "parity")]
mod recording;
mod tolerance;

pub use compare::{Judge, PartDifference, compare_shard};
pub use perturb::perturb_constants;
#[cfg(feature = "parity")]
pub use recording::{RecordedTensor, Recorder, RecordingError, TensorKind, read_step, remove_step};
pub use tolerance::Tolerance;
