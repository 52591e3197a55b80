//! Communication between ranks: process groups over host slices.
//!
//! A [`ProcessGroup`] is a set of ranks that communicate together: `all_reduce`, `all_gather`,
//! `reduce_scatter`, `broadcast`, `send`, `recv`, `barrier`, blocking or as a [`Pending`] to wait
//! on.
//!
//! The layers, from the caller down:
//!
//! | file | what it adds |
//! |---|---|
//! | `process_group` | how a group is made, the typed calls, argument checks |
//! | `shared_buffer` | buffers that ranks of one node reduce without a copy, and the calls on them |
//! | `group_core` | order of calls, first failure, asynchronous calls |
//! | `lanes` | first in, first out; the thread that runs asynchronous calls, which thread makes a lane's, what waits |
//! | `engines` | the trait that moves the bytes: three operations, and the others made of these; engines that run alone |
//! | `host` | engines for host memory: shared memory inside a node, TCP between nodes, both for groups that have both |
//! | `device` | what an engine for the memory of a device, in addition to that of the host, needs of a group |
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
mod connecting;
#[doc(hidden)]
pub mod device;
mod device_engine;
mod element;
mod engine_choice;
mod engines;
mod error;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod group_core;
mod health;
mod host;
mod lanes;
mod process_group;
mod rendezvous;
mod shared_buffer;
mod shared_memory;
#[cfg(test)]
mod tests;

pub use crate::ranks::listed_ranks;
pub use call::{CallDescriptor, Operation, ReduceOp};
pub use element::{CollectiveElement, ElementType};
pub use engine_choice::EngineChoice;
pub use engines::engine::Engine;
pub use error::CollectiveError;
pub use lanes::pending::Pending;
pub use process_group::{GroupOptions, ProcessGroup};
pub use shared_buffer::SharedBuffer;
pub use shared_memory::{SharedMemory, shared_memory_bytes};
