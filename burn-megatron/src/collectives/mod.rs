//! Communication between ranks: the process groups of [`burn_megatron_comm`], and collectives on burn tensors.
//!
//! A [`ProcessGroup`] is a set of ranks that communicate together. A
//! [`ParallelContext`](crate::context::ParallelContext) makes the groups; `mappings`, `data_parallel` and the trainer
//! call them. [`run`] and [`start`] take tensors outside an autodiff graph, [`move_differentiable`] those of one.
//! [`CollectiveBackend`] says how a backend's tensors travel.
//!
//! What groups guarantee: [`burn_megatron_comm::collectives`].

mod group_config;
#[cfg(feature = "cuda")]
mod nccl;
mod tensors;

pub use burn_megatron_comm::collectives::{
    CallDescriptor, CollectiveElement, CollectiveError, ElementType, Engine, EngineChoice, GroupOptions, Operation,
    Pending, ProcessGroup, ReduceOp, SharedBuffer, SharedMemory, listed_ranks, shared_memory_bytes,
};
pub use group_config::GroupConfig;
#[cfg(feature = "cuda")]
pub(crate) use nccl::wait_for_gpu_calls;
#[cfg(feature = "cuda")]
pub use nccl::{NcclTraffic, takes_shared_gpus};
#[cfg(feature = "trainer")]
pub(crate) use tensors::compare_hash;
pub use tensors::{
    CHUNK_ROWS, CallMode, CollectiveBackend, InputError, InputsDiffer, Movement, PendingTensor, RegionEntry, RowChunks,
    TensorCall, catch_collective_error, connect, has_device_memory, linear_into_region, linear_out_of_region,
    move_data, move_differentiable, recv_start, run, send_start, start, tensor_engine, unwrap_or_unwind,
};
pub(crate) use tensors::{as_constant, compare_input, compare_values, show_input, watch_input};
