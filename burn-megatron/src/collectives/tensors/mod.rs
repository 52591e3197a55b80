//! The collectives on burn tensors, backend by backend.

mod autodiff;
mod backend;
mod flex;
mod pending;
mod staging;
mod unwind;

pub use backend::{CollectiveBackend, Movement};
pub use pending::PendingReceive;
pub use unwind::{catch_collective_error, unwrap_or_unwind};
