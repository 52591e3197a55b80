//! Claims about every operation: refusals, empty tensors, threads, memory; sums of vectors' gradients; random numbers,
//! reductions and limits of kernels.

pub(super) mod attention_memory;
#[cfg(feature = "cuda")]
pub(super) mod device_limits;
pub(super) mod nothing;
#[cfg(feature = "cuda")]
pub(super) mod random;
#[cfg(feature = "cuda")]
pub(super) mod reductions;
pub(super) mod refusals;
pub(super) mod threads;
pub(super) mod vector_sums;
