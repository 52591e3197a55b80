//! The collectives over shared memory.
//!
//! # Steps, slots and flags
//!
//! Collectives proceed in steps, counted from the making of the group, the same on every rank. In
//! a step every rank hands over at most one chunk, in its staging area `step % SLOTS`. Three
//! counters in each rank's block say how far it is; a counter at `step + 1` means that the rank
//! has done that part of the step:
//!
//! ```text
//!            stage                      reduce                        collect
//! write my contribution    my slice of every contribution     read every rank's
//! into my area             -> my area                         reduced slice
//! `staged` = step + 1      `reduced` = step + 1               `taken` = step + 1
//!          |                    ^     |                            ^      |
//!          +-- all `staged` ----+     +-------- all `reduced` -----+      |
//!   ^                                                                     |
//!   +------------------- all `taken`, SLOTS steps later ------------------+
//! ```
//!
//! Who may touch an area: from `taken` by all (SLOTS steps before) to its own `staged` the owner
//! alone writes it. After `staged` others only read it, except that after all ranks have staged,
//! rank r reads slice r of every area and, being the only reader, then writes its result over
//! slice r of its own; after `reduced` that slice is only read. Raising a counter releases what was
//! written before, seeing it acquires that: no area is ever written while another rank looks.
//!
//! A rank stages chunk k + 1 before it reduces chunk k, so while one rank still copies, the other
//! already adds. Its own slice never goes through shared memory: it is reduced in the caller's
//! buffer.
//!
//! The first step of a call also carries the call's descriptor, and in it every rank waits for all
//! ranks and compares; so no byte of a different call is ever used. Operations without a reduction,
//! and small all-reduces, where every rank adds up everything, need `staged` and `taken` only: one
//! round of waiting, as the wait for `taken` is for a step that all have left.

mod in_place;

use super::super::super::call::{CallDescriptor, Operation};
use super::super::super::error::CollectiveError;
use super::SharedMemoryEngine;
use super::flag::Flag;
use super::layout::{CHUNK_BYTES, RankBlock, SLOTS};
use super::segment::Area;
use crate::collectives::engines::reduce::reduce_in_place;
use crate::collectives::host::parts::{Chunks, LINE, slice};
use std::iter;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Up to this size every rank of an all-reduce adds up everything: reading a little more costs
/// less than another round of waiting.
const SMALL_BYTES: usize = 8 * 1024;

/// One collective of one rank on its way through its steps.
pub(in super::super) struct Round<'a> {
    engine: &'a SharedMemoryEngine,
    call: &'a CallDescriptor,
    first_step: u32,
    /// Steps finished.
    steps: u32,
}

impl<'a> Round<'a> {
    /// Returns a collective that begins at `first_step`.
    pub fn new(engine: &'a SharedMemoryEngine, call: &'a CallDescriptor, first_step: u32) -> Self {
        Self {
            engine,
            call,
            first_step,
            steps: 0,
        }
    }

    /// Returns the step after the last one taken.
    pub fn next_step(&self) -> u32 {
        self.first_step.wrapping_add(self.steps)
    }

    /// Replaces `buffer` by its reduction over all ranks.
    pub fn all_reduce(&mut self, buffer: &mut [u8]) -> Result<(), CollectiveError> {
        if buffer.len() <= SMALL_BYTES {
            return self.all_reduce_small(buffer);
        }
        let chunks = Chunks::new(buffer.len(), CHUNK_BYTES);
        self.stage_slices(0, &buffer[chunks.range(0)])?;
        for index in 0..chunks.count() {
            if index + 1 < chunks.count() {
                self.stage_slices(index + 1, &buffer[chunks.range(index + 1)])?;
            }
            let chunk = &mut buffer[chunks.range(index)];
            self.reduce_slice(index, chunk)?;
            self.collect_slices(index, chunk)?;
            self.finish(index);
        }
        Ok(())
    }

    /// Every rank reads all contributions and adds them up itself.
    fn all_reduce_small(&mut self, buffer: &mut [u8]) -> Result<(), CollectiveError> {
        self.stage(0, |area| {
            // SAFETY: `stage` gives the area to its owner alone.
            unsafe { area.write(0, buffer) };
            buffer.len()
        })?;
        self.await_staged(0, self.peers())?;
        self.reduce(0, buffer, 0);
        self.finish(0);
        Ok(())
    }

    /// Hands the other ranks their slices of a chunk; slice r is at the same place in every area as in the chunk.
    fn stage_slices(&self, index: usize, chunk: &[u8]) -> Result<(), CollectiveError> {
        let own = self.slice(chunk.len(), self.rank());
        self.stage(index, |area| {
            // SAFETY: `stage` gives the area to its owner alone.
            unsafe {
                area.write(0, &chunk[..own.start]);
                area.write(own.end, &chunk[own.end..]);
            }
            chunk.len() - own.len()
        })
    }

    /// Reduces this rank's slice of a chunk, in the chunk, and hands the result to the others.
    fn reduce_slice(&self, index: usize, chunk: &mut [u8]) -> Result<(), CollectiveError> {
        let own = self.slice(chunk.len(), self.rank());
        self.await_staged(index, self.peers())?;
        let result = &mut chunk[own.clone()];
        self.reduce(index, result, own.start);
        // SAFETY: all ranks have staged, and no rank but this one reads this slice of any area before `reduced` is
        // raised.
        unsafe { self.area(self.rank(), index).write(own.start, result) };
        self.engine.count_bytes(own.len());
        self.block(self.rank()).reduced.raise(self.done(index));
        Ok(())
    }

    /// Fills the other ranks' slices of a chunk with their results.
    fn collect_slices(&self, index: usize, chunk: &mut [u8]) -> Result<(), CollectiveError> {
        for peer in self.peers() {
            self.wait_for(peer, |block| &block.reduced, self.done(index))?;
            let slice = self.slice(chunk.len(), peer);
            // SAFETY: after its `reduced` the slice is only read, until this rank's `taken`.
            let result = unsafe { self.area(peer, index).read(slice.start, slice.len()) };
            chunk[slice].copy_from_slice(result);
        }
        Ok(())
    }

    /// Fills `shard` with this rank's part of the reduction of `input`.
    pub fn reduce_scatter(&mut self, input: &[u8], shard: &mut [u8]) -> Result<(), CollectiveError> {
        // An area holds a piece for each rank, at fixed places.
        let place = CHUNK_BYTES / self.ranks() / LINE * LINE;
        let length = shard.len();
        let pieces = Chunks::new(length, place);
        let piece_for = |rank: usize, index: usize| {
            let range = pieces.range(index);
            &input[rank * length + range.start..rank * length + range.end]
        };
        let stage = |round: &Self, index: usize| {
            round.stage(index, |area| {
                let mut bytes = 0;
                for peer in round.peers() {
                    let piece = piece_for(peer, index);
                    // SAFETY: `stage` gives the area to its owner alone.
                    unsafe { area.write(peer * place, piece) };
                    bytes += piece.len();
                }
                bytes
            })
        };
        stage(self, 0)?;
        for index in 0..pieces.count() {
            if index + 1 < pieces.count() {
                stage(self, index + 1)?;
            }
            self.await_staged(index, self.peers())?;
            let result = &mut shard[pieces.range(index)];
            result.copy_from_slice(piece_for(self.rank(), index));
            self.reduce(index, result, self.rank() * place);
            self.finish(index);
        }
        Ok(())
    }

    /// Fills `output` with the shards of all ranks.
    pub fn all_gather(&mut self, shard: &[u8], output: &mut [u8]) -> Result<(), CollectiveError> {
        let chunks = Chunks::new(shard.len(), CHUNK_BYTES);
        let stage = |round: &Self, index: usize| {
            let chunk = &shard[chunks.range(index)];
            round.stage(index, |area| {
                // SAFETY: `stage` gives the area to its owner alone.
                unsafe { area.write(0, chunk) };
                chunk.len()
            })
        };
        stage(self, 0)?;
        for index in 0..chunks.count() {
            if index + 1 < chunks.count() {
                stage(self, index + 1)?;
            }
            let range = chunks.range(index);
            let place = |rank: usize| rank * shard.len() + range.start..rank * shard.len() + range.end;
            output[place(self.rank())].copy_from_slice(&shard[range.clone()]);
            self.await_staged(index, self.peers())?;
            for peer in self.peers() {
                // SAFETY: `await_staged` has returned, and an all_gather only stages.
                let shard = unsafe { self.staged(peer, index, 0, range.len()) };
                output[place(peer)].copy_from_slice(shard);
            }
            self.finish(index);
        }
        Ok(())
    }

    /// Replaces `buffer` by the root's.
    pub fn broadcast(&mut self, buffer: &mut [u8]) -> Result<(), CollectiveError> {
        let root = self.call.other_side();
        let chunks = Chunks::new(buffer.len(), CHUNK_BYTES);
        for index in 0..chunks.count() {
            let chunk = &mut buffer[chunks.range(index)];
            if root == self.rank() {
                self.stage(index, |area| {
                    // SAFETY: `stage` gives the area to its owner alone.
                    unsafe { area.write(0, chunk) };
                    chunk.len()
                })?;
                // The root runs ahead, as far as the slots allow.
                self.await_staged(index, iter::empty())?;
            } else {
                self.stage(index, |_| 0)?;
                self.await_staged(index, iter::once(root))?;
                // SAFETY: `await_staged` has returned, and a broadcast only stages.
                chunk.copy_from_slice(unsafe { self.staged(root, index, 0, chunk.len()) });
            }
            self.finish(index);
        }
        Ok(())
    }

    /// Waits until this rank's area is free, lets `fill` write it and return the bytes written,
    /// and hands it to the others; the call's descriptor with it in the first step.
    pub fn stage(&self, index: usize, fill: impl FnOnce(Area<'_>) -> usize) -> Result<(), CollectiveError> {
        let free = self.done(index).wrapping_sub(SLOTS as u32);
        for peer in self.peers() {
            self.wait_for(peer, |block| &block.taken, free)?;
        }
        self.engine.count_bytes(fill(self.area(self.rank(), index)));
        let block = self.block(self.rank());
        if index == 0 {
            let words = &block.calls[self.slot(index)];
            for (word, value) in words.iter().zip(self.call.encode()) {
                word.store(value, Ordering::Relaxed);
            }
        }
        block.staged.raise(self.done(index));
        Ok(())
    }

    /// Waits until the ranks `from` have staged; in the first step, until all have and have made
    /// the same call.
    pub fn await_staged(&self, index: usize, from: impl Iterator<Item = usize>) -> Result<(), CollectiveError> {
        let staged = |peer| self.wait_for(peer, |block: &RankBlock| &block.staged, self.done(index));
        if index > 0 {
            return { from }.try_for_each(staged);
        }
        self.peers().try_for_each(staged)?;
        let call_of = |rank: usize| -> [u64; 4] {
            let words = &self.block(rank).calls[self.slot(index)];
            std::array::from_fn(|word| words[word].load(Ordering::Relaxed))
        };
        let own = self.call.encode();
        if self.peers().all(|peer| call_of(peer) == own) {
            return Ok(());
        }
        let calls: Vec<CallDescriptor> = (0..self.ranks())
            .map(|rank| CallDescriptor::decode(call_of(rank)))
            .collect::<Option<_>>()
            .expect("ranks of one program write descriptors that decode");
        self.engine.health.label.compare_calls(&calls)
    }

    /// Reduces `own`, this rank's contribution, with what the other ranks have staged at `offset`: this rank's slice,
    /// in a step in which the others write their own.
    fn reduce(&self, index: usize, own: &mut [u8], offset: usize) {
        let contributions: Vec<&[u8]> = (0..self.ranks())
            .map(|peer| {
                if peer == self.rank() {
                    &[]
                } else {
                    // SAFETY: every caller has called `await_staged`; only this rank writes its slice, and it does
                    // so after this.
                    unsafe { self.staged(peer, index, offset, own.len()) }
                }
            })
            .collect();
        let op = self.call.reduction();
        reduce_in_place(self.call.element_type, op, own, self.rank(), &contributions);
    }

    /// Returns bytes that the rank `peer` has staged for this rank in a step not yet finished; not to be kept beyond
    /// its end, for which the borrow sees.
    ///
    /// # Safety
    /// `await_staged` of the step has returned for `peer`. Where ranks reduce slices in their areas
    /// ([`reduce_slice`](Self::reduce_slice)), the bytes are of this rank's slice, which this rank does not write while
    /// the result lives.
    ///
    /// # Panics
    /// When `peer` has not staged, the step is finished, or the bytes are out of bounds.
    pub unsafe fn staged(&self, peer: usize, index: usize, offset: usize, length: usize) -> &[u8] {
        let has_staged = self.block(peer).staged.has_reached(self.done(index));
        assert!(has_staged, "rank {peer} has not staged step {index}");
        assert!(
            index >= self.steps as usize,
            "step {index} of {} is finished",
            self.steps
        );
        // SAFETY: until this rank's `taken`, which `finish` raises with a borrow of its own, the owner does not stage
        // in this area again; what it writes there otherwise, the caller rules out.
        unsafe { self.area(peer, index).read(offset, length) }
    }

    /// Gives the step's areas back.
    pub fn finish(&mut self, index: usize) {
        let block = self.block(self.rank());
        // Not every step reduces; the counter keeps up, so that it never seems to be ahead.
        block.reduced.set(self.done(index));
        block.taken.raise(self.done(index));
        self.steps = index as u32 + 1;
    }

    /// Waits for a counter of the rank `peer`.
    fn wait_for(&self, peer: usize, flag: impl Fn(&RankBlock) -> &Flag, target: u32) -> Result<(), CollectiveError> {
        let missing = || {
            let is_missing = |peer: &usize| !flag(self.block(*peer)).has_reached(target);
            self.peers().filter(is_missing).collect()
        };
        let waited_for = flag(self.block(peer));
        self.engine.wait_for(self.call, peer, (waited_for, target), missing)
    }

    /// Returns what the counters say when the call's step `index` is done.
    pub fn done(&self, index: usize) -> u32 {
        self.first_step.wrapping_add(index as u32).wrapping_add(1)
    }

    fn slot(&self, index: usize) -> usize {
        // 2^32 is a multiple of the number of slots: the order survives the wrap.
        const { assert!(SLOTS.is_power_of_two()) };
        self.first_step.wrapping_add(index as u32) as usize % SLOTS
    }

    fn area(&self, rank: usize, index: usize) -> Area<'a> {
        self.engine.segment.area(rank, self.slot(index))
    }

    pub fn block(&self, rank: usize) -> &'a RankBlock {
        self.engine.segment.rank_block(rank)
    }

    fn rank(&self) -> usize {
        self.engine.health.label.rank
    }

    fn peers(&self) -> impl Iterator<Item = usize> + Clone + use<> {
        self.engine.health.label.peers()
    }

    fn ranks(&self) -> usize {
        self.engine.health.label.size()
    }

    /// Returns the part of a chunk that the rank with this group index reduces.
    fn slice(&self, length: usize, rank: usize) -> Range<usize> {
        slice(length, self.ranks(), LINE, rank)
    }
}
