//! The collectives on burn tensors, backend by backend.

mod autodiff;
mod backend;
mod call;
mod chunks;
#[cfg(feature = "cubecl")]
mod cube;
mod entry;
mod exit;
#[cfg(feature = "fusion")]
mod fusion;
mod movement;
#[cfg(feature = "nccl")]
mod nccl;
#[cfg(feature = "ndarray")]
mod ndarray;
mod overlap;
mod pending;
mod same_input;
mod staging;
mod unwind;

pub use backend::CollectiveBackend;
pub use call::{CallMode, TensorCall};
pub use chunks::{CHUNK_ROWS, RowChunks};
pub use movement::{Movement, RegionEntry};
pub use overlap::{GatheredGradient, PendingRows};
pub use pending::PendingTensor;
#[cfg(feature = "trainer")]
pub(crate) use same_input::compare_hash;
pub use same_input::{InputError, InputsDiffer};
pub(crate) use same_input::{compare_input, compare_values, show_input, watch_input};
pub use unwind::{catch_collective_error, unwrap_or_unwind};

/// What the features promise: burn's backends are [`CollectiveBackend`]s, with autodiff and without.
#[allow(dead_code, reason = "that it compiles is the proof")]
const fn burns_backends_take_part() {
    const fn takes_part<B: CollectiveBackend>()
    where
        burn::backend::Autodiff<B>: CollectiveBackend,
    {
    }
    takes_part::<burn_flex::Flex>();
    #[cfg(feature = "ndarray")]
    takes_part::<burn_ndarray::NdArray<f32>>();
    #[cfg(feature = "ndarray")]
    takes_part::<burn_ndarray::NdArray<f64>>();
    #[cfg(feature = "wgpu")]
    takes_part::<burn_wgpu::Wgpu>();
    #[cfg(feature = "vulkan")]
    takes_part::<burn_wgpu::Vulkan>();
    #[cfg(feature = "cuda")]
    takes_part::<burn_cuda::Cuda>();
}
