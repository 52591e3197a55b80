//! Communication between ranks: the process groups of [`burn_megatron_comm`], and collectives on burn tensors.
//!
//! A [`ProcessGroup`] is a set of ranks that communicate together. A
//! [`ParallelContext`](crate::context::ParallelContext) makes the groups; `mappings`, `data_parallel` and the trainer
//! call them. [`CollectiveBackend`] takes tensors, of any backend that implements it, inside and outside an autodiff
//! graph.
//!
//! What groups guarantee: [`burn_megatron_comm::collectives`].

mod group_config;
#[cfg(feature = "nccl")]
mod nccl;
mod tensors;

pub use burn_megatron_comm::collectives::{
    CallDescriptor, CollectiveElement, CollectiveError, ElementType, Engine, EngineChoice, GroupOptions, Operation,
    Pending, ProcessGroup, ReduceOp, SharedBuffer, SharedMemory, listed_ranks, shared_memory_bytes,
};
pub use cubecl_kernels::KernelBackend;
pub use group_config::GroupConfig;
#[cfg(feature = "nccl")]
pub(crate) use nccl::wait_for_gpu_calls;
#[cfg(feature = "nccl")]
pub use nccl::{NcclTraffic, takes_shared_gpus};
#[cfg(feature = "trainer")]
pub(crate) use tensors::compare_hash;
pub use tensors::{
    CHUNK_ROWS, CallMode, CollectiveBackend, GatheredGradient, InputError, InputsDiffer, Movement, PendingRows,
    PendingTensor, RegionEntry, RowChunks, TensorCall, catch_collective_error, unwrap_or_unwind,
};
pub(crate) use tensors::{compare_input, compare_values, show_input, watch_input};
