//! Who is alive, who has left, who is lost or suspected, and which failure counts.
//!
#![doc = include_str!("README.md")]
// Without a server, a peer's half of it is used.
#![cfg_attr(not(feature = "tcp"), allow(dead_code, unused_imports))]

mod blame;
mod failure_signal;
mod first_cause;
mod heartbeat;
mod heartbeat_sender;
mod members;
mod monitor;
mod silence;
mod states;
mod suspicions;

#[cfg(test)]
mod tests;

pub(super) use blame::CAUSE_LIMIT;
pub(crate) use blame::blame;
pub use failure_signal::FailureSignal;
pub(super) use failure_signal::SETTLE_LIMIT;
pub(super) use heartbeat::Rhythm;
pub(super) use heartbeat_sender::{Beats, HeartbeatOptions, HeartbeatSender, send_heartbeat};
pub(super) use members::Members;
pub(super) use monitor::start_monitor;
pub(super) use silence::Heartbeats;
pub(super) use states::{Action, Event};
pub(crate) use suspicions::Suspicions;
#[cfg(test)]
pub(crate) use suspicions::note_key;
