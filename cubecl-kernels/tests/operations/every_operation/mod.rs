//! Claims about every operation: memory; sums of vectors' gradients; random numbers and reductions of kernels.

pub(super) mod attention_memory;
#[cfg(feature = "cuda")]
pub(super) mod random;
#[cfg(feature = "cuda")]
pub(super) mod reductions;
pub(super) mod vector_sums;
