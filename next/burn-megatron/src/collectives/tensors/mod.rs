//! The collectives on burn tensors, backend by backend.

mod backend;
mod call;
mod pending;
mod staging;
mod unwind;

pub use backend::CollectiveBackend;
pub use call::{CallMode, TensorCall};
pub use pending::PendingTensor;
pub use unwind::{catch_collective_error, unwrap_or_unwind};
