//! Communication between ranks: process groups over host slices, and the same on burn tensors.
//!
//! A [`ProcessGroup`] is a set of ranks that communicate together: `all_reduce`, `all_gather`,
//! `reduce_scatter`, `broadcast`, `send`, `recv`, `barrier`, blocking or as a [`Pending`] to wait
//! on. A [`ParallelContext`](crate::context::ParallelContext) makes the groups; `mappings`, `data_parallel` and the
//! trainer call them. [`CollectiveBackend`] takes tensors, of any backend that implements it.
//!
//! The layers, from the caller down:
//!
//! | file | what it adds |
//! |---|---|
//! | `tensors` | collectives on tensors, inside and outside an autodiff graph |
//! | `process_group` | the typed calls, argument checks |
//! | `shared_buffer` | buffers that ranks of one node reduce without a copy, and the calls on them |
//! | `group_core` | order of calls, first failure, asynchronous calls |
//! | `lane` | first in, first out, and the thread that runs asynchronous calls |
//! | `owner` | which thread makes the calls of a lane |
//! | `engine` | the trait that moves the bytes |
//! | `host` | engines for host memory: shared memory inside a node, TCP between nodes, both for groups that have both |
//! | `mpi` | an engine over MPI, with the feature `mpi` |
//! | `nccl` | an engine for what lies on GPUs, beside that for host memory, with the feature `nccl` |
//!
//! Guarantees:
//! - Reductions add in rank order (rank 0 + rank 1 + …), so a result is bit-identical on all
//!   ranks and does not depend on the engine, the message size or chunk boundaries.
//! - Two threads of a rank never take turns in a group's calls by chance: another thread's call is refused
//!   ([`CollectiveError::OtherThread`]).
//! - Every call is compared between the ranks that take part; different calls are an error that
//!   names both ([`CollectiveError::Mismatch`]).
//! - Every wait is bounded by [`World::timeout`](crate::launch::World::timeout) and looks at the
//!   [`FailureSignal`](crate::launch::FailureSignal).
//! - After the first error a group refuses every further call and repeats the first cause
//!   ([`CollectiveError::Poisoned`]).

mod call;
mod element;
mod engine;
mod error;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod group_core;
mod health;
mod host;
mod lane;
#[cfg(feature = "mpi")]
mod mpi;
#[cfg(feature = "nccl")]
mod nccl;
mod owner;
mod pending;
mod process_group;
mod shared_buffer;
mod single;
mod tensors;
#[cfg(any(test, feature = "contract-suite"))]
#[doc(hidden)]
pub mod tests;

pub use cubecl_kernels::KernelBackend;

pub use call::{CallDescriptor, Operation, ReduceOp};
pub use element::{CollectiveElement, ElementType};
pub use engine::Engine;
pub use error::CollectiveError;
pub use host::{EngineChoice, SharedMemory, shared_memory_bytes};
#[cfg(feature = "nccl")]
pub use nccl::NcclTraffic;
pub use pending::Pending;
pub use process_group::{GroupConfig, ProcessGroup};
pub use shared_buffer::SharedBuffer;
#[cfg(feature = "trainer")]
pub(crate) use tensors::compare_hash;
pub use tensors::{
    CollectiveBackend, InputError, InputsDiffer, Movement, PendingTensor, RegionEntry, catch_collective_error,
    unwrap_or_unwind,
};
pub(crate) use tensors::{compare_input, show_input, watch_input};
