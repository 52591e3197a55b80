//! Optimizer state that is not where the module is: on the CPU, or in a file.
//!
//! What is offloaded, main values and the optimizer's tensors, is updated by the CPU, bucket by bucket: gradients come
//! to the host, and updated parameters return. The tensors are in a [`TensorStore`](crate::offload::TensorStore), the
//! update of a piece is [`HostState`](host::HostState)'s, and [`OptimizerOffload`] is where all that is asked for.

mod host;
mod place;

#[cfg(test)]
pub(super) use host::HostState;
#[cfg(any(feature = "checkpoint", feature = "learner"))]
pub(super) use host::NamedData;
pub(super) use host::{HostPieceSpec, OffloadedState, PieceUpdate};
pub(super) use place::Offload;
pub use place::OptimizerOffload;
