//! Who is alive, who is suspected, who is lost, and to whom that is reported.

mod failure_signal;
mod heartbeat;
mod heartbeat_sender;
#[cfg(feature = "tcp")]
mod silence;
mod suspicions;

pub use failure_signal::FailureSignal;
pub(super) use failure_signal::SETTLE_LIMIT;
pub(super) use heartbeat::Rhythm;
pub(super) use heartbeat_sender::{Beats, HeartbeatOptions, HeartbeatSender};
#[cfg(feature = "tcp")]
pub(super) use silence::Heartbeats;
pub(crate) use suspicions::Suspicions;
#[cfg(test)]
pub(crate) use suspicions::note_key;
