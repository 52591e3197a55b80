//! The interface between a group and what moves its bytes.
//!
//! Implemented by `single` (a group of one), by `fake` (a rank that answers for its peers) and by the host
//! engines. Data on a GPU does not pass through it: burn-megatron's `nccl` moves that.

use super::aligned::AlignedBytes;
use super::reduce::reduce_in_place;
use crate::collectives::call::{CallDescriptor, Operation};
use crate::collectives::error::CollectiveError;
use crate::collectives::shared_memory::SharedMemory;
use std::fmt::Debug;
use std::ops::Range;

/// Moves the bytes of one group's calls.
///
/// Three operations move bytes: [`all_gather`](Self::all_gather), [`send`](Self::send) and [`recv`](Self::recv). The
/// others have a form made of these, so every engine has every operation; one that has a faster form overrides it, with
/// the same result bit by bit.
///
/// Buffers are bytes of `call.element_type`, aligned for it, of the lengths that the operation asks for: the group has
/// checked them. Every collective compares the calls of all ranks before it uses what they bring. The group makes one
/// collective at a time, one send at a time to each peer and one receive at a time from each peer; these three kinds
/// may run at the same time from different threads.
///
/// A call that fails leaves the engine unusable; the group then calls [`leave`](Self::leave) and makes no further call.
///
/// # Errors
/// Of every call: different calls on different ranks, a timeout, a failed rank.
pub trait Engine: Debug + Send + Sync {
    /// Returns the engine's name: `single`, `fake`, `shared-memory`, `tcp`, `hierarchical`.
    fn name(&self) -> &'static str;

    /// Returns this rank's index in the group, and the number of ranks.
    fn place(&self) -> (usize, usize);

    /// Fills `output` with the `shard` of every rank, in rank order.
    fn all_gather(&self, call: &CallDescriptor, shard: &[u8], output: &mut [u8]) -> Result<(), CollectiveError>;

    /// Sends `buffer` to the rank `call.peer`. May return before it has been received.
    fn send(&self, call: &CallDescriptor, buffer: &[u8]) -> Result<(), CollectiveError>;

    /// Fills `buffer` with what the rank `call.peer` sends.
    fn recv(&self, call: &CallDescriptor, buffer: &mut [u8]) -> Result<(), CollectiveError>;

    /// Returns when all ranks have come.
    fn barrier(&self, call: &CallDescriptor) -> Result<(), CollectiveError> {
        self.all_gather(call, &[], &mut [])
    }

    /// Replaces `buffer` by its reduction over all ranks.
    fn all_reduce(&self, call: &CallDescriptor, buffer: &mut [u8]) -> Result<(), CollectiveError> {
        let (rank, size) = self.place();
        let (mut gathered, length) = (AlignedBytes::default(), buffer.len());
        let gathered = gathered.of_length(size * length);
        self.all_gather(call, buffer, gathered)?;
        let contributions: Vec<&[u8]> = (0..size).map(|peer| &gathered[peer * length..][..length]).collect();
        reduce_in_place(call.element_type, call.reduction(), buffer, rank, &contributions);
        Ok(())
    }

    /// Fills `shard` with this rank's part of the reduction of `input` over all ranks.
    fn reduce_scatter(&self, call: &CallDescriptor, input: &[u8], shard: &mut [u8]) -> Result<(), CollectiveError> {
        let (rank, size) = self.place();
        let (mut gathered, length) = (AlignedBytes::default(), shard.len());
        let gathered = gathered.of_length(size * input.len());
        self.all_gather(call, input, gathered)?;
        let part = |peer: usize| &gathered[peer * input.len() + rank * length..][..length];
        shard.copy_from_slice(part(rank));
        let contributions: Vec<&[u8]> = (0..size).map(part).collect();
        reduce_in_place(call.element_type, call.reduction(), shard, rank, &contributions);
        Ok(())
    }

    /// Replaces `buffer` by that of the rank `call.peer`.
    fn broadcast(&self, call: &CallDescriptor, buffer: &mut [u8]) -> Result<(), CollectiveError> {
        let mut gathered = AlignedBytes::default();
        let gathered = gathered.of_length(self.place().1 * buffer.len());
        self.all_gather(call, buffer, gathered)?;
        buffer.copy_from_slice(&gathered[call.other_side() * buffer.len()..][..buffer.len()]);
        Ok(())
    }

    /// Carries out `call`, on a shared buffer, where that is memory of this rank's own.
    fn in_place(&self, call: &CallDescriptor, buffer: &mut [u8]) -> Result<(), CollectiveError> {
        if call.operation == Operation::AllReduceShared {
            return self.all_reduce(call, buffer);
        }
        let own = own_shard(self.place(), buffer.len());
        let mut shard = AlignedBytes::default();
        let shard = shard.of_length(own.len());
        if call.operation == Operation::AllGatherShared {
            shard.copy_from_slice(&buffer[own]);
            return self.all_gather(call, shard, buffer);
        }
        self.reduce_scatter(call, buffer, shard)?;
        buffer[own].copy_from_slice(shard);
        Ok(())
    }

    /// Returns `bytes` zeros for this rank in memory that the other ranks reach too; `None`, on every rank, where this
    /// engine or this machine has no such memory. `bytes` may be 0.
    fn allocate(&self, call: &CallDescriptor, bytes: usize) -> Result<Option<SharedMemory>, CollectiveError> {
        let _ = bytes;
        // The ranks still compare their calls.
        self.barrier(call)?;
        Ok(None)
    }

    /// Carries out `call`, on a shared buffer, of memory from [`allocate`](Self::allocate). After an error other ranks
    /// may still write to it, so it is not given back.
    fn on_shared(&self, call: &CallDescriptor, mut memory: SharedMemory) -> Result<SharedMemory, CollectiveError> {
        self.in_place(call, memory.bytes_mut())?;
        Ok(memory)
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

/// Returns this rank's of the equal shards of `length` bytes.
fn own_shard((rank, size): (usize, usize), length: usize) -> Range<usize> {
    let shard = length / size;
    rank * shard..(rank + 1) * shard
}
