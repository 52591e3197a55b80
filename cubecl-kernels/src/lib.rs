//! Fused operations for training transformers with burn, forward and backward: attention, softmax, norms, activations,
//! embeddings, rotary positions, cross-entropy, AdamW.
//!
//! Each operation has a folder of its own: the public function with its checks (`mod.rs`), the definition in burn's
//! operations (`reference.rs`), the kernels in CubeCL (`kernel.rs`, `launch.rs`), the form for the CPU (`flex.rs`) and
//! the backward rule (`autodiff.rs`). [`KernelBackend`] says which backend runs which of them: its defaults are the
//! references, so that every burn backend works.
//!
//! Numbers of f16, bf16 and f32 are computed with in f32, those of f64 in f64.
#![warn(missing_docs)]

pub mod accumulate;
pub mod adamw;
mod backend;
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
mod kernels;
pub mod l2_norm;
pub mod linear;
pub mod norm;
pub mod paged_attention;
pub mod precision;
pub mod random;
pub mod ranges;
pub mod rotary;
pub mod softmax;
mod sums;
pub mod swiglu;
pub mod tape;
mod token_range;

pub use backend::KernelBackend;
pub use error::KernelError;
pub use kernels::Kernels;
