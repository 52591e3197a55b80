//! The engine over NCCL, in real processes: every operation on tensors of burn's CUDA backend against plain sums, the
//! order between its streams and the backend's, ranks that die, come late, leave or share a GPU; gradients that are
//! added to their buckets as products; layers that communicate in chunks; a pipeline's first steps; parameters that are
//! gathered during the next forward pass; a model that a plan places; the memory that calls hold.
//!
//! NVIDIA's libraries are the emulator's (`cuda-emulator`), which needs no GPU: the backend, CubeCL's server and the
//! engine are the real ones. With `NCCL_TESTS_ON_GPU=1` they are NVIDIA's, and trials with more than one rank count as
//! ignored, or with more than two where `NCCL_MULTI_RANK_GPU_ENABLE=1` lets NCCL take two on one GPU.

mod cases;
mod chunks;
mod endings;
mod gather;
mod many;
mod matmul;
mod memory;
mod pipeline;
mod placed;
pub mod ranks;
mod room;

pub use cases::trials;

use std::time::Duration;

/// The number of ranks of a case.
const RANKS: &str = "NCCL_TEST_RANKS";
/// Whether NVIDIA's own libraries are used.
const ON_GPU: &str = "NCCL_TESTS_ON_GPU";
const LONG: Duration = Duration::from_secs(120);
