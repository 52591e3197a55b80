//! all_reduce and reduce_scatter: every slice goes along the chain of nodes, and its result back.
//!
//! ```text
//! node 0            node 1                  last node
//! r0 + r1  ------>  … + r2 + r3  ------>  … + r4 + r5 = result
//!   result <------      result   <------------/
//! ```
//!
//! The owner of a slice on the first node adds up what its node's ranks have shown, in rank order, and sends the sum to
//! the owner on the next node, which adds its own node's ranks to it, one after the other. Ranks ascend along the
//! chain, so the sum is that of all ranks in rank order, bit for bit the one of the flat engines. The last owner
//! divides a mean and rounds halves, whose sums travel in f32.
//!
//! Chunks follow each other, so all links are busy at once, in both directions, and each direction of a link carries
//! the data once (twice on the way there for f16 and bf16). That is bandwidth optimal for the first and the last node,
//! so for two nodes altogether; a node between two others sends the data once to each side, n/(n - 1) times what it
//! would send in a ring of n nodes, where however every slice begins its sum on another node, out of rank order. The
//! other price is the time until the first result is back, which is that of 2 (n - 1) transfers of a chunk: linear in
//! the nodes.
//!
//! A node shows a chunk's contributions in one step and its results in a later one. Between the two, `DEPTH` chunks are
//! on their way for every node that is still ahead. That is the number of chunks by which the second kind of step
//! trails the first.
//!
//! Nothing waits in a circle (see `in_flight`): to show chunk k, a node needs the sums of chunk k from the node before
//! it and the results of a chunk before k; these need no more of any node ahead than a chunk before k, since the lag is
//! smaller there.

use super::super::super::call::CallDescriptor;
use super::super::super::error::CollectiveError;
use super::super::parts::Chunks;
use super::super::shared_memory::layout::CHUNK_BYTES;
use super::in_flight::{CollectiveInFlight, common};
use super::topology::Topology;
use crate::collectives::engines::aligned::AlignedBytes;
use crate::collectives::engines::reduce::{accumulate, accumulator_bytes, complete};
use std::ops::Range;

/// Chunks on their way for each node ahead: enough to fill the network while a node adds.
const DEPTH: usize = 4;

/// The buffers of a reduction.
pub(super) enum Operands<'a> {
    /// All ranks get everything, in the place of their contribution.
    InPlace(&'a mut [u8]),
    /// Every rank gets its shard.
    Scatter {
        /// The contribution to all shards.
        input: &'a [u8],
        /// Where the result goes.
        shard: &'a mut [u8],
    },
}

impl Operands<'_> {
    fn contribution(&self) -> &[u8] {
        match self {
            Operands::InPlace(buffer) => buffer,
            Operands::Scatter { input, .. } => input,
        }
    }

    /// Returns the part of the result that some of the ranks need.
    fn needed_by(&self, ranks: Range<usize>) -> Range<usize> {
        match self {
            Operands::InPlace(buffer) => 0..buffer.len(),
            Operands::Scatter { shard, .. } => ranks.start * shard.len()..ranks.end * shard.len(),
        }
    }

    /// Takes what this rank needs of a part of the result that begins at `start`.
    fn put(&mut self, rank: usize, start: usize, part: &[u8]) {
        let needed = self.needed_by(rank..rank + 1);
        let own = common(&(start..start + part.len()), &needed);
        let bytes = &part[own.start - start..own.end - start];
        match self {
            Operands::InPlace(buffer) => buffer[own].copy_from_slice(bytes),
            Operands::Scatter { shard, .. } => {
                // What is in common with nothing may be outside.
                if !own.is_empty() {
                    shard[own.start - needed.start..own.end - needed.start].copy_from_slice(bytes);
                }
            }
        }
    }
}

/// The memory of one reduction.
#[derive(Default)]
struct Scratch {
    sums: AlignedBytes,
    result: AlignedBytes,
}

impl CollectiveInFlight<'_, '_> {
    /// Reduces the contributions of all ranks and gives every rank what it needs of the result.
    pub fn reduce(&mut self, call: &CallDescriptor, mut operands: Operands<'_>) -> Result<(), CollectiveError> {
        let chunks = Chunks::new(operands.contribution().len(), CHUNK_BYTES);
        let lag = DEPTH * (self.topology.node_count() - 1 - self.topology.node);
        let mut scratch = Scratch::default();
        for index in 0..chunks.count() + lag {
            if index < chunks.count() {
                self.contribute(call, &operands, chunks.range(index), &mut scratch)?;
            }
            if index >= lag {
                self.deliver(&mut operands, chunks.range(index - lag), &mut scratch)?;
            }
        }
        Ok(())
    }

    /// Adds this node's contributions to the sums of the nodes before it and passes them on; on the last node leaves
    /// the result in `scratch`.
    fn contribute(
        &mut self,
        call: &CallDescriptor,
        operands: &Operands<'_>,
        chunk: Range<usize>,
        scratch: &mut Scratch,
    ) -> Result<(), CollectiveError> {
        let topology = self.topology;
        let (members, contribution) = (topology.own_members(), operands.contribution());
        if !topology.is_owner() {
            self.begin_step(&[(0, &contribution[chunk])], 0..0)?;
            self.end_step();
            return Ok(());
        }
        let own = self.slice(&chunk, topology.local_rank);
        let before = (0, &contribution[chunk.start..own.start]);
        let after = (own.end - chunk.start, &contribution[own.end..chunk.end]);
        self.begin_step(&[before, after], 0..members.len())?;
        let (element_type, op) = (call.element_type, call.reduction());
        let sums = scratch.sums.of_length(accumulator_bytes(element_type, own.len()));
        if let Some(previous) = topology.node.checked_sub(1) {
            self.streams.receive([(topology.partner(previous), &mut *sums)])?;
        }
        let contributions: Vec<&[u8]> = (0..members.len())
            .map(|local_rank| {
                if local_rank == topology.local_rank {
                    &contribution[own.clone()]
                } else {
                    self.shown(local_rank, own.start - chunk.start, own.len())
                }
            })
            .collect();
        accumulate(element_type, op, sums, members.start, &contributions);
        self.end_step();
        if topology.node + 1 < topology.node_count() {
            let next = topology.partner(topology.node + 1);
            self.streams.drain_to(0, next)?;
            self.streams.send(next, sums);
        } else {
            let result = scratch.result.of_length(own.len());
            complete(element_type, op, sums, topology.ranks(), result);
        }
        Ok(())
    }

    /// Takes this node's part of a chunk's result from the next node, unless it is the last, passes it on to the node
    /// before it and gives the ranks of this node what they need.
    fn deliver(
        &mut self,
        operands: &mut Operands<'_>,
        chunk: Range<usize>,
        scratch: &mut Scratch,
    ) -> Result<(), CollectiveError> {
        let topology = self.topology;
        let rank = topology.own_members().start + topology.local_rank;
        let needed = operands.needed_by(topology.own_members());
        let mut own = chunk.start..chunk.start;
        let mut kept: &[u8] = &[];
        if topology.is_owner() {
            let slice = self.slice(&chunk, topology.local_rank);
            let coming = common(&slice, &needed_up_to(operands, topology, topology.node));
            let result = scratch.result.of_length(coming.len());
            if topology.node + 1 < topology.node_count() {
                let next = topology.partner(topology.node + 1);
                self.streams.receive([(next, &mut *result)])?;
            }
            if let Some(previous) = topology.node.checked_sub(1) {
                let going = common(&slice, &needed_up_to(operands, topology, previous));
                // As far ahead as the node before may lag while it contributes. At the end, when nothing that it sends
                // holds this node up any more, the lag of all nodes before would pile up here. The node before takes
                // the results of the chunks before these without anything that this node has not done yet.
                let limit = DEPTH * self.slice(&(0..CHUNK_BYTES), 0).len();
                let previous = topology.partner(previous);
                self.streams.drain_to(limit, previous)?;
                self.streams.send(previous, &result[..going.len()]);
            }
            own = common(&slice, &needed);
            kept = &result[own.start - slice.start..own.end - slice.start];
            operands.put(rank, own.start, kept);
        }
        if common(&chunk, &needed).is_empty() {
            return Ok(());
        }
        self.begin_step(&[(own.start - chunk.start, kept)], 0..topology.owners())?;
        for owner in self.other_owners() {
            let shown = common(&self.slice(&chunk, owner), &needed);
            operands.put(
                rank,
                shown.start,
                self.shown(owner, shown.start - chunk.start, shown.len()),
            );
        }
        self.end_step();
        Ok(())
    }
}

/// Returns the part of the result that comes back as far as `node`: what it and the nodes before it need.
fn needed_up_to(operands: &Operands<'_>, topology: &Topology, node: usize) -> Range<usize> {
    operands.needed_by(0..topology.members(node).end)
}
