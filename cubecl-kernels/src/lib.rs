//! Fused operations for burn, forward and backward, in CubeCL and for the CPU.
//!
//! Each has a folder with its kernels, and a line here: types that implement [`Operation`], for forward and backward
//! pass, and a function that makes them a node of burn's graph ([`tape`]).

pub mod accumulate;
pub mod adamw;
pub mod bias_dropout_add;
pub mod bias_gelu;
pub mod cross_entropy;
#[cfg(feature = "cubecl")]
pub mod cube;
#[cfg(feature = "cublaslt")]
pub mod cublaslt;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod embedding;
mod error;
pub mod flash_attention;
mod flex;
mod gradient_place;
pub mod l2_norm;
pub mod linear;
pub mod norm;
pub mod operation;
pub mod paged_attention;
pub mod precision;
pub mod random;
pub mod ranges;
pub mod rotary;
mod row_blocks;
pub mod softmax;
mod sums;
pub mod swiglu;
pub mod tape;
mod token_range;

pub use error::KernelError;
pub use operation::{Kernels, Operation, kernels, set_kernels};
