//! The flight recorder: the last collectives of every group of this rank, with times, kept to be read after a failure.
//!
//! Always on. Each group keeps its last calls in a ring ([`FlightRecorder::group`], called by `collectives`): which
//! operation, its number, its buffer, when it was made, begun and ended, and from which line. With a folder
//! (`BURN_MEGATRON_FLIGHT_RECORDER_DIR`, or [`JoinConfig`](crate::launch::JoinConfig)) a rank writes its rings there
//! when a collective fails, when it panics or ends with an error, and on SIGUSR1: one JSON file per rank.
//!
//! - `recorder`: the rings.
//! - `file`(mod@file): the files, written and read.
//! - `line_up`: takes the records of all ranks, one after the other.
//! - `report`: puts the files of all ranks side by side and says who is late; `examples/flight_recorder` prints it.

mod file;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod line_up;
mod recorder;
mod report;
#[cfg(test)]
mod tests;

pub use file::{FlightRecorderError, RankRecord, RecordedCall, RecordedGroup, State};
pub use recorder::{CallNote, FlightRecorder, GroupRecorder, RankIdentity, variables};
pub use report::{LateLane, LateRank, MetFailure, OutOfStep, Report};
