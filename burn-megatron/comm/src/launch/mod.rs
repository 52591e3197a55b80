//! How a job of many processes comes together, notices that one of them is gone, and ends.
//!
//! One operating-system process per rank. The pieces, in the order in which a job meets them:
//!
//! - [`Environment`]: who am I? Read from the variables that a launcher set.
//! - [`Launcher`]: no rank in the environment and a world size above one: start this executable once per rank.
//! - [`Store`] and [`StoreServer`]: a key-value store over TCP where ranks meet; it also notices deaths.
//! - [`World`]: this process's membership of the job, from joining to leaving.
//! - [`FailureSignal`]: raised once when some rank has failed; every wait loop looks at it.
//! - [`StopFlag`]: set by Ctrl-C or SIGTERM, read once per training step.
//!
//! A program calls [`run`]. One that chooses more than the number of ranks looks like this:
//!
//! ```no_run
//! use std::process::ExitCode;
//! use std::time::Duration;
//!
//! use burn_megatron_comm::launch::{JoinConfig, LaunchError, Launcher, Role, World, enter, report_and_exit};
//!
//! fn main() -> Result<ExitCode, LaunchError> {
//!     let config = JoinConfig::new().with_timeout(Duration::from_secs(60));
//!     match enter(Launcher::new(4), &config)? {
//!         Role::Launched(summary) => Ok(summary.into()), // has already printed which rank failed first, if one did
//!         Role::Rank(world) => match work(&world) {
//!             Ok(()) => Ok(ExitCode::SUCCESS), // dropping `world` says goodbye
//!             Err(error) => report_and_exit(&world, &error),
//!         },
//!     }
//! }
//!
//! fn work(world: &World) -> Result<(), LaunchError> {
//!     world.store().set(&format!("hello from {}", world.rank()), b"")
//! }
//! ```

mod cores;
mod descriptors;
mod environment;
mod error;
mod exit;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod handshake;
mod host;
mod identity;
mod interrupt;
mod launcher;
mod liveness;
mod network;
mod peer_failure;
mod resolver;
mod role;
mod run;
mod server;
mod store;
pub mod variables;
mod world;

pub use cores::CoreSet;
pub use environment::{Environment, host_alone};
pub use error::LaunchError;
pub use exit::{exit_code_of, install_panic_hook, report_and_exit, report_failure};
#[cfg(test)]
pub(crate) use handshake::MAGIC;
pub(crate) use handshake::{Acceptance, Claim, Next, initiate};
pub use host::{host_identity, host_name};
pub use identity::JobToken;
pub(crate) use identity::hex;
pub use interrupt::StopFlag;
pub use launcher::{LaunchSummary, Launcher, Nodes, Prefix, RankEnd, RankOutcome};
pub use liveness::FailureSignal;
#[cfg(test)]
pub(crate) use liveness::note_key;
pub(crate) use liveness::{Suspicions, blame};
pub(crate) use network::listen;
pub use peer_failure::PeerFailure;
pub(crate) use peer_failure::{DID_NOT_COME, OUT_OF_STEP, Suspicion};
pub use role::{Role, enter, join};
pub use run::run;
pub use server::{FailureCallback, StoreServer, StoreServerConfig, StoreTraffic};
pub(crate) use store::{Absent, BoundedStream, MAX_GATHERED_VALUE_BYTES, Runs, Saying};
pub use store::{MAX_KEY_BYTES, MAX_STORE_BYTES, MAX_VALUE_BYTES, Store};
pub(crate) use world::EndsWithWorld;
pub use world::{JoinConfig, World};

pub use crate::ranks::RankSet;

use std::fmt;
use std::io::Write;

/// Exit code of a rank that ends only because another rank failed (`EX_TEMPFAIL` of sysexits.h).
///
/// The launcher never names such a rank as the first cause when another rank has a failure of its own.
pub const SECONDARY_FAILURE_EXIT_CODE: i32 = 75;

/// Writes a line to stderr. Unlike `eprintln!`, it does not panic when stderr has no reader any more.
fn log_stderr(line: fmt::Arguments<'_>) {
    // In one piece: other ranks write to the same pipe.
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}
