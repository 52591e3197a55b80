//! Who is alive, who is suspected, who is lost, and to whom that is reported.

mod blame;
mod failure_signal;
mod first_cause;
mod heartbeat;
mod heartbeat_sender;
#[cfg(feature = "tcp")]
mod members;
mod monitor;
// Without a server, what a peer makes of the store is used.
#[cfg_attr(not(feature = "tcp"), allow(dead_code))]
mod silence;
#[cfg_attr(not(feature = "tcp"), allow(dead_code))]
mod states;
mod suspicions;

#[cfg(feature = "tcp")]
#[cfg(test)]
mod tests;

pub(super) use blame::CAUSE_LIMIT;
pub(crate) use blame::blame;
pub use failure_signal::FailureSignal;
pub(super) use failure_signal::SETTLE_LIMIT;
pub(super) use heartbeat::Rhythm;
pub(super) use heartbeat_sender::{Beats, HeartbeatOptions, HeartbeatSender, send_heartbeat};
#[cfg(feature = "tcp")]
pub(super) use members::Members;
pub(super) use monitor::start_monitor;
#[cfg(feature = "tcp")]
pub(super) use silence::Heartbeats;
#[cfg(feature = "tcp")]
pub(super) use states::{Action, Event};
pub(crate) use suspicions::Suspicions;
#[cfg(test)]
pub(crate) use suspicions::note_key;
