//! What the tests share: processes of ranks and of programs, small problems, networks and disks.

pub mod browser;
pub mod cable;
pub mod checkpoints;
pub mod harness;
pub mod job;
pub mod problem;
pub mod processes;
pub mod program;
pub mod rank_folder;
pub mod references;
pub mod served;
pub mod small_disk;
pub mod sockets;
pub mod storm;
pub mod training;

use std::path::PathBuf;

use burn::backend::Autodiff;
use burn_flex::Flex;

/// The backend of most cases.
pub type B = Autodiff<Flex>;

/// The tests' folder in the checkout that they were started from.
///
/// Not the one that they were built in: checkouts may share a target folder, and cargo does not build again for that.
pub fn folder() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from)
}
