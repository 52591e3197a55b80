//! The collectives on memory that all ranks have mapped: nothing is staged.
//!
//! ```text
//!   enter                     work, a part at a time                     leave
//! `staged` = first + 1   slice r of all ranks' memory is rank r's   all ranks' `reduced` = last + 1
//! and all have come      `reduced` = part + 1                       `taken` = last + 1
//! ```
//!
//! Entering compares the calls, and hands the caller's writes over to the others; leaving waits for what they have
//! written here. Rank r reduces slice r and writes the result to all ranks' memory at once, while it has the lines in
//! its cache: had each rank copied the others' results, every line would cross between the cores once more (64 MiB
//! took 5.8 instead of 3.6 ms on 2 ranks, 14.0 instead of 6.8 ms on 4 ranks that shared two cores).
//!
//! Parts are there for the waiting only: a rank that works through a long slice is seen to make progress.

use super::*;
use crate::collectives::shared_memory::SharedMemory;

/// What a rank does of its slice between two signs of progress.
const PART_BYTES: usize = 16 * 1024 * 1024;
/// What is reduced and written to all ranks before the next is read: it stays in the second cache.
const BLOCK_BYTES: usize = 64 * 1024;

impl Round<'_> {
    /// Continues with a second collective under the same descriptor.
    pub fn begin_again(&mut self) {
        self.first_step = self.next_step();
        self.steps = 0;
    }

    /// Carries out the call, on this memory.
    pub fn on_shared(&mut self, mut memory: SharedMemory) -> Result<SharedMemory, CollectiveError> {
        let (length, rank) = (memory.length(), self.rank());
        let operation = self.call.operation;
        if operation == Operation::AllReduceShared && length <= SMALL_BYTES {
            // No other rank touches this rank's memory: one round of waiting.
            self.all_reduce_small(memory.bytes_mut())?;
            return Ok(memory);
        }
        let shard = length / self.ranks();
        // The first slice is the longest.
        let (own, longest, bytes) = match operation {
            Operation::AllReduceShared => (self.slice(length, rank), self.slice(length, 0).len(), length),
            Operation::AllGatherShared => (rank * shard..(rank + 1) * shard, shard, shard),
            _ => (rank * shard..(rank + 1) * shard, shard, length - shard),
        };
        self.engine.count_bytes(bytes);
        self.in_parts(own, longest, |round, range| {
            for block in blocks(range) {
                if operation != Operation::AllGatherShared {
                    round.reduce_block(&memory, block.clone());
                }
                if operation != Operation::ReduceScatterShared {
                    for peer in round.peers() {
                        // SAFETY: inside `in_parts`, this rank's slice of every rank's memory is its own.
                        unsafe { memory.copy(rank, peer, block.clone()) };
                    }
                }
            }
        })?;
        Ok(memory)
    }

    /// Lets `work` at the parts of `own`, this rank's slice of every rank's memory, between the coming of all ranks
    /// and the last one's end. `longest` is the length of the longest slice.
    fn in_parts(
        &mut self,
        own: Range<usize>,
        longest: usize,
        work: impl Fn(&Self, Range<usize>),
    ) -> Result<(), CollectiveError> {
        self.enter()?;
        let parts = Chunks::new(longest, PART_BYTES).count();
        for part in 0..parts {
            let start = (own.start + part * PART_BYTES).min(own.end);
            work(self, start..(start + PART_BYTES).min(own.end));
            self.block(self.rank()).reduced.raise(self.done(part));
            self.engine.health.check(Some(self.call))?;
        }
        for part in 0..parts {
            for peer in self.peers() {
                self.wait_for(peer, |block| &block.reduced, self.done(part))?;
            }
        }
        self.finish(parts - 1);
        Ok(())
    }

    fn enter(&self) -> Result<(), CollectiveError> {
        self.stage(0, |_| 0)?;
        self.await_staged(0, self.peers())
    }

    /// Comes to the call and does nothing more, as a rank that dies.
    #[cfg(test)]
    pub fn enter_and_stop(&self) -> Result<(), CollectiveError> {
        self.enter()
    }

    /// Reduces bytes of this rank's slice over all ranks, in its own memory.
    fn reduce_block(&self, memory: &SharedMemory, range: Range<usize>) {
        let contributions: Vec<&[u8]> = (0..self.ranks())
            .map(|peer| {
                if peer == self.rank() {
                    &[][..]
                } else {
                    // SAFETY: inside `in_parts`, this rank's slice of every rank's memory is its own; it is not written
                    // while the contributions live.
                    unsafe { &*memory.slice(peer, range.clone()) }
                }
            })
            .collect();
        // SAFETY: as above, of another rank than the contributions.
        let own = unsafe { &mut *memory.slice(self.rank(), range) };
        let op = self.call.reduction();
        reduce_in_place(self.call.element_type, op, own, self.rank(), &contributions);
    }
}

/// Returns a range in blocks.
fn blocks(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range
        .step_by(BLOCK_BYTES)
        .map(move |start| start..(start + BLOCK_BYTES).min(end))
}
