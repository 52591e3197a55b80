//! Recording: calls are counted and nothing is computed, so that a program with real sizes runs where no GPU is.
//!
//! Chosen by [`VARIABLE`]. What the driver, NVRTC, NCCL and cuBLASLt do then is where their functions are; here are
//! the counters (`tally`) and how a program reads them (`snapshot`).

mod snapshot;
mod tally;

use std::sync::OnceLock;

pub use snapshot::{Memory, Recorded, Row};
pub(crate) use tally::{count, memory_changed};

/// The environment variable that chooses recording, if it is 1.
pub const VARIABLE: &str = "CUDA_EMULATOR_RECORDING";

/// Whether calls are counted and nothing is computed.
pub(crate) fn is_on() -> bool {
    static IS_ON: OnceLock<bool> = OnceLock::new();
    *IS_ON.get_or_init(|| std::env::var_os(VARIABLE).is_some_and(|value| value == "1"))
}
