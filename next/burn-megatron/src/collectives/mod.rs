//! Communication between ranks: the process groups of [`burn_megatron_comm`], and collectives on burn tensors.
//!
//! A [`ProcessGroup`] is a set of ranks that communicate together. [`CollectiveBackend`] takes tensors, of any backend
//! that implements it.
//!
//! What groups guarantee: [`burn_megatron_comm::collectives`].

mod group_config;
mod tensors;

pub use burn_megatron_comm::collectives::{
    CallDescriptor, CollectiveElement, CollectiveError, ElementType, Engine, EngineChoice, GroupOptions, Operation,
    Pending, ProcessGroup, ReduceOp, SharedBuffer, SharedMemory, listed_ranks, shared_memory_bytes,
};
pub use group_config::GroupConfig;
pub use tensors::{CallMode, CollectiveBackend, PendingTensor, TensorCall, catch_collective_error, unwrap_or_unwind};
