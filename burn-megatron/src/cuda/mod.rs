//! CUDA: what must be there before a rank computes on a GPU, and which GPU it takes; with the feature `cuda`.
//!
//! burn's CUDA backend panics where a library is missing. A program calls [`libraries::check`] before it starts ranks,
//! each rank [`choose`] before its first tensor, and [`check_shared`] when it has a group of all ranks.
//!
//! Building needs neither CUDA nor a GPU.
//!
//! Groups that are made with [`GroupConfig::nccl_gpu`](crate::collectives::GroupConfig) move tensors on the GPU over
//! NCCL:
//!
//! ```text
//! let gpu = cuda::choose(world.local_rank(), Sharing::Refused)?;
//! let device = Device::cuda(gpu);
//! let groups = GroupConfig::new().with_nccl_gpu(Some(gpu));
//! let context = ParallelContextConfig::new(parallel).with_groups(groups).init(&world)?;
//! cuda::check_shared(gpu, context.world_group())?;
//! ```
//!
//! Matmuls run on burn's own kernels, or on NVIDIA's cuBLASLt after [`enable_cublaslt`].

mod cores;
pub(crate) mod driver;
mod gpu;
#[cfg(feature = "kernel-cache")]
mod kernel_cache;
pub mod libraries;
mod lost_work;
mod matmul;

pub use cores::{BoundCores, bind_cores};
pub(crate) use driver::chosen;
pub use gpu::{Sharing, check_shared, choose, device_name, reserved_bytes};
pub(crate) use lost_work::note_lost;
pub use lost_work::{DeviceMemory, LostWork, check_work, end_process_on_lost_work};
pub use matmul::{check_same_matmuls, enable_cublaslt};

use burn_megatron_comm::collectives::CollectiveError;

/// Why a rank cannot compute on a GPU.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say it")]
pub enum CudaError {
    /// A library or its files are not there.
    #[error("{what}: {looked}; {remedy}")]
    Missing {
        what: &'static str,
        looked: String,
        remedy: &'static str,
    },
    #[error(
        "NVRTC {nvrtc} compiles kernels that this driver cannot load: it knows versions up to CUDA {driver}; update \
         NVIDIA's driver, or put an NVRTC of CUDA {driver} or older first on LD_LIBRARY_PATH"
    )]
    NvrtcTooNew {
        nvrtc: libraries::Version,
        driver: libraries::Version,
    },
    #[error("the CUDA driver refuses {call}: {error}")]
    Driver { call: &'static str, error: String },
    #[error(
        "local rank {local_rank} has no GPU: this node has {gpus} (CUDA_VISIBLE_DEVICES {}), expected at least {}; \
         start fewer ranks on it, or let ranks share GPUs (--share-gpu)",
        visible.as_deref().map_or_else(|| "is not set".to_owned(), |visible| format!("is {visible:?}")),
        local_rank + 1
    )]
    TooFew {
        local_rank: usize,
        gpus: usize,
        /// `CUDA_VISIBLE_DEVICES`, if it is set.
        visible: Option<String>,
    },
    #[error(
        "ranks {first} and {second} compute on the same GPU, {uuid}: expected one each; see CUDA_VISIBLE_DEVICES, or \
         allow it (--share-gpu), for tests: they then communicate through host memory, unless \
         NCCL takes them"
    )]
    Shared { first: usize, second: usize, uuid: String },
    /// Ranks compute matmuls differently, so that the same numbers would not give the same bits.
    #[error(
        "rank {first} computes matmuls with {of_first}, rank {other} with {of_other}: expected the same on all; see \
         LD_LIBRARY_PATH, or compute them without cuBLASLt (--no-cublaslt)"
    )]
    DifferentMatmuls {
        first: usize,
        of_first: String,
        other: usize,
        of_other: String,
    },
    /// The operating system does not say, or does not let this process choose, on which cores it runs.
    #[error("cannot bind this rank to cores: {0}")]
    Cores(std::io::Error),
    /// The ranks could not tell each other their GPUs.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
}
