//! The interface between a group and what moves its bytes.
//!
//! Called by `group_core` only. Implemented by `single` (a group of one), by the host engines and
//! by `mpi`. What lies on a GPU goes past it, to `nccl`.

use super::call::CallDescriptor;
use super::error::CollectiveError;
use super::host::SharedMemory;
use std::fmt::Debug;

/// Moves the bytes of one group's calls.
///
/// Buffers are bytes of `call.element_type`, aligned for it, of the lengths that the operation
/// asks for: the group has checked them. The group makes one collective at a time, one send at a
/// time to each peer and one receive at a time from each peer; these three kinds may run at the
/// same time from different threads.
///
/// A call that fails leaves the engine unusable; the group then calls [`leave`](Self::leave) and
/// makes no further call.
pub trait Engine: Debug + Send + Sync {
    /// Returns the engine's name: `single`, `shared-memory`, `tcp`, `hierarchical`, `mpi`.
    fn name(&self) -> &'static str;

    /// Replaces `buffer` by its reduction over all ranks.
    ///
    /// # Errors
    /// Different calls on different ranks, a timeout, a failed rank. The same holds for every
    /// operation below.
    fn all_reduce(&self, call: &CallDescriptor, buffer: &mut [u8]) -> Result<(), CollectiveError>;

    /// Fills `output` with the `shard` of every rank, in rank order.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    fn all_gather(&self, call: &CallDescriptor, shard: &[u8], output: &mut [u8]) -> Result<(), CollectiveError>;

    /// Fills `shard` with this rank's part of the reduction of `input` over all ranks.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    fn reduce_scatter(&self, call: &CallDescriptor, input: &[u8], shard: &mut [u8]) -> Result<(), CollectiveError>;

    /// Replaces `buffer` by the buffer of the rank `call.peer`.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    fn broadcast(&self, call: &CallDescriptor, buffer: &mut [u8]) -> Result<(), CollectiveError>;

    /// Sends `buffer` to the rank `call.peer`; may return before it has been received.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    fn send(&self, call: &CallDescriptor, buffer: &[u8]) -> Result<(), CollectiveError>;

    /// Fills `buffer` with what the rank `call.peer` sent.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    fn recv(&self, call: &CallDescriptor, buffer: &mut [u8]) -> Result<(), CollectiveError>;

    /// Returns when every rank has come.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    fn barrier(&self, call: &CallDescriptor) -> Result<(), CollectiveError>;

    /// Returns `bytes` zeros for this rank in memory that the other ranks reach too; `None`, on every rank, where this
    /// engine or this machine has no such memory. `bytes` may be 0.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    fn allocate(&self, call: &CallDescriptor, bytes: usize) -> Result<Option<SharedMemory>, CollectiveError> {
        let _ = bytes;
        // The ranks still compare their calls.
        self.barrier(call)?;
        Ok(None)
    }

    /// Returns `memory`, which [`allocate`](Self::allocate) has made, with its reduction over all ranks.
    ///
    /// After an error other ranks may still write to the memory, so it is not given back. The same holds for the two
    /// operations below. An engine that allocates overrides all three.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    fn all_reduce_shared(&self, call: &CallDescriptor, memory: SharedMemory) -> Result<SharedMemory, CollectiveError> {
        unreachable!("{} has allocated no {memory:?} for {call:?}", self.name())
    }

    /// Returns `memory` with every rank's shard, in rank order; this rank's is in its place already.
    ///
    /// # Errors
    /// As [`all_reduce_shared`](Self::all_reduce_shared).
    fn all_gather_shared(&self, call: &CallDescriptor, memory: SharedMemory) -> Result<SharedMemory, CollectiveError> {
        unreachable!("{} has allocated no {memory:?} for {call:?}", self.name())
    }

    /// Returns `memory` with this rank's shard reduced over all ranks, in its place; the other shards are as they were.
    ///
    /// # Errors
    /// As [`all_reduce_shared`](Self::all_reduce_shared).
    fn reduce_scatter_shared(
        &self,
        call: &CallDescriptor,
        memory: SharedMemory,
    ) -> Result<SharedMemory, CollectiveError> {
        unreachable!("{} has allocated no {memory:?} for {call:?}", self.name())
    }

    /// Returns what the rank with group index `peer`, another one, said when it gave the group up, if it has. For waits that
    /// are not this engine's: it waits for nobody, but for a moment for a store that has the words.
    fn farewell_of(&self, peer: usize) -> Option<String>;

    /// Returns the payload bytes that this rank has put on the wire, or into shared memory, for
    /// other ranks.
    fn bytes_communicated(&self) -> u64;

    /// Tells the other ranks, as well as it can and without waiting for them, that this rank makes
    /// no further call, and why.
    fn leave(&self, cause: &str);
}
