//! [`PlacedDataParallel`]: a placed model in
//! [`DistributedDataParallel`](crate::data_parallel::DistributedDataParallel).
//!
//! The model's operations run on placed tensors; what is stored, reduced, updated and saved are this rank's parts.

mod binding;
mod buffers;
mod error;
mod local_parameters;
mod model_axes;
mod wrapper;

pub use error::{LocalParameterError, PlacedError};
pub use local_parameters::{LocalParameter, LocalParameters};
pub use wrapper::{LocalDataParallel, LocalMut, PlacedDataParallel};
