//! Claims about every operation: sums of vectors' gradients; random numbers and reductions of kernels.

#[cfg(feature = "cuda")]
pub(super) mod random;
#[cfg(feature = "cuda")]
pub(super) mod reductions;
pub(super) mod vector_sums;
