//! The interface between a group and what moves its bytes.
//!
//! Implemented by `single` (a group of one), by the host engines and by burn-megatron-mpi. Data on a GPU does not pass
//! through it: burn-megatron's `nccl` moves that.

use super::call::CallDescriptor;
use super::error::CollectiveError;
use super::shared_memory::SharedMemory;
use std::fmt::Debug;

/// The host memory of a call.
#[derive(Debug)]
pub enum HostBuffers<'a> {
    /// A barrier has none.
    None,
    /// What is sent.
    Sent(&'a [u8]),
    /// What an all-reduce and a broadcast replace, and a receive fills.
    InPlace(&'a mut [u8]),
    /// An all-gather fills `output` with the `input` of every rank, in rank order; a reduce-scatter with this rank's
    /// part of the reduction of `input` over all ranks.
    Separate {
        /// What is read.
        input: &'a [u8],
        /// What is written.
        output: &'a mut [u8],
    },
}

/// Panics because of buffers that do not fit a call's operation: the group has made them.
pub fn wrong_buffers(call: &CallDescriptor, buffers: &HostBuffers<'_>) -> ! {
    unreachable!("{buffers:?} for {call:?}")
}

/// Moves the bytes of one group's calls.
///
/// HostBuffers are bytes of `call.element_type`, aligned for it, of the lengths that the operation
/// asks for: the group has checked them. The group makes one collective at a time, one send at a
/// time to each peer and one receive at a time from each peer; these three kinds may run at the
/// same time from different threads.
///
/// A call that fails leaves the engine unusable; the group then calls [`leave`](Self::leave) and
/// makes no further call.
pub trait Engine: Debug + Send + Sync {
    /// Returns the engine's name: `single`, `shared-memory`, `tcp`, `hierarchical`, `mpi`.
    fn name(&self) -> &'static str;

    /// Carries a call out, with the buffers that its operation asks for.
    ///
    /// A send may return before its buffer has been received.
    ///
    /// # Errors
    /// Different calls on different ranks, a timeout, a failed rank.
    fn execute(&self, call: &CallDescriptor, buffers: HostBuffers<'_>) -> Result<(), CollectiveError>;

    /// Returns `bytes` zeros for this rank in memory that the other ranks reach too; `None`, on every rank, where this
    /// engine or this machine has no such memory. `bytes` may be 0.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    fn allocate(&self, call: &CallDescriptor, bytes: usize) -> Result<Option<SharedMemory>, CollectiveError> {
        let _ = bytes;
        // The ranks still compare their calls.
        self.execute(call, HostBuffers::None)?;
        Ok(None)
    }

    /// Returns `memory`, which [`allocate`](Self::allocate) has made, after an operation on shared buffers.
    ///
    /// After an error other ranks may still write to the memory, so it is not given back. An engine that allocates
    /// overrides this.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    fn execute_shared(&self, call: &CallDescriptor, memory: SharedMemory) -> Result<SharedMemory, CollectiveError> {
        unreachable!("{} has allocated no {memory:?} for {call:?}", self.name())
    }

    /// Returns what another rank, with group index `peer`, said when it gave the group up, if it has. For waits outside
    /// this engine: the call waits for no rank, and only for a moment for a store that has the words.
    fn disconnect_reason(&self, peer: usize) -> Option<String>;

    /// Returns the payload bytes that this rank has put on the wire, or into shared memory, for
    /// other ranks.
    fn bytes_communicated(&self) -> u64;

    /// Tells the other ranks, as well as it can and without waiting for them, that this rank makes
    /// no further call, and why.
    fn leave(&self, cause: &str);
}
