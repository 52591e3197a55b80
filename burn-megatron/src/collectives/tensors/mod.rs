//! The collectives on burn tensors, backend by backend.

mod autodiff;
mod backend;
#[cfg(feature = "cubecl")]
mod cube;
mod entry;
#[cfg(feature = "fusion")]
mod fusion;
#[cfg(feature = "nccl")]
mod nccl;
mod pending;
mod same_input;
mod staging;
mod unwind;

pub use backend::{CollectiveBackend, Movement};
pub use entry::RegionEntry;
pub use pending::PendingTensor;
pub use same_input::{InputError, InputsDiffer};
pub(crate) use same_input::{compare_hash, compare_input, show_input, watch_input};
pub use unwind::{catch_collective_error, unwrap_or_unwind};
