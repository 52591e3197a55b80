//! all_gather and broadcast: data that only moves.
//!
//! all_gather: in one step the ranks of a node show each other a chunk of their shards, and every owner sends its
//! slices of these to its partner on every other node; in a later step it shows its node what its partners have sent.
//!
//! broadcast: the root shows a chunk to its node; the owners send their slices to the next node, which shows them and
//! passes them on to the next, up to the node before the root's. A chain, so that the root's node sends the data
//! once, whatever the number of nodes.
//!
//! Nothing waits in a circle (see `in_flight`): in a broadcast a node waits only for nodes before it in the chain; in
//! an all_gather, showing what came of chunk k needs only that the other nodes have come as far as showing their own
//! chunk k, for which they need what came of an earlier one.

use super::super::super::error::CollectiveError;
use super::super::parts::{Chunks, LINE};
use super::super::shared_memory::layout::CHUNK_BYTES;
use super::in_flight::CollectiveInFlight;
use std::ops::Range;

/// Chunks of an all_gather on their way between the nodes.
const DEPTH: usize = 4;
/// What an owner may have in its queue for another node before it sends a chunk. More it never has: before chunk k it
/// has taken their chunk k - 1 - DEPTH, before which they have taken its chunk k - 2 - 2 DEPTH.
const MAX_AHEAD_BYTES: usize = (2 * DEPTH + 1) * CHUNK_BYTES;
/// The most ranks of which an owner can show slices at once.
pub(super) const MAX_GATHERED_RANKS: usize = CHUNK_BYTES / LINE;

impl CollectiveInFlight<'_, '_> {
    /// Fills `output` with the shards of all ranks.
    pub fn all_gather(&mut self, shard: &[u8], output: &mut [u8]) -> Result<(), CollectiveError> {
        let topology = self.topology;
        assert!(topology.ranks() <= MAX_GATHERED_RANKS, "{} ranks", topology.ranks());
        // An owner shows a slice of every rank's chunk at once.
        let slice_bytes = CHUNK_BYTES / topology.ranks() / LINE * LINE;
        let chunks = Chunks::new(shard.len(), slice_bytes * topology.owners());
        let mut message = Vec::new();
        for index in 0..chunks.count() + DEPTH {
            if index < chunks.count() {
                self.gather(shard, output, chunks.range(index), &mut message)?;
            }
            if index >= DEPTH {
                self.spread(shard.len(), output, chunks.range(index - DEPTH), &mut message)?;
            }
        }
        Ok(())
    }

    /// Gathers a chunk of the shards of this node and sends it to the others.
    fn gather(
        &mut self,
        shard: &[u8],
        output: &mut [u8],
        chunk: Range<usize>,
        message: &mut Vec<u8>,
    ) -> Result<(), CollectiveError> {
        let topology = self.topology;
        let members = topology.own_members();
        self.begin_step(&[(0, &shard[chunk.clone()])], 0..members.len())?;
        for (local_rank, rank) in members.clone().enumerate() {
            let place = rank * shard.len();
            let bytes = if local_rank == topology.local_rank {
                &shard[chunk.clone()]
            } else {
                self.shown(local_rank, 0, chunk.len())
            };
            output[place + chunk.start..place + chunk.end].copy_from_slice(bytes);
        }
        self.end_step();
        if topology.is_owner() {
            let own = self.slice(&chunk, topology.local_rank);
            message.clear();
            for rank in members {
                let place = rank * shard.len();
                message.extend_from_slice(&output[place + own.start..place + own.end]);
            }
            for node in (0..topology.node_count()).filter(|node| *node != topology.node) {
                let partner = topology.partner(node);
                self.streams.drain_to(MAX_AHEAD_BYTES, partner)?;
                self.streams.send(partner, message);
            }
        }
        Ok(())
    }

    /// Takes a chunk of the shards of the other nodes and gives it to the ranks of this one.
    fn spread(
        &mut self,
        shard_bytes: usize,
        output: &mut [u8],
        chunk: Range<usize>,
        message: &mut Vec<u8>,
    ) -> Result<(), CollectiveError> {
        let topology = self.topology;
        let other_nodes = (0..topology.node_count()).filter(|node| *node != topology.node);
        let other_ranks = || other_nodes.clone().flat_map(|node| topology.members(node));
        // Of every rank of the other nodes the slice, in rank order.
        let mut put = |slice: Range<usize>, bytes: &[u8]| {
            for (rank, part) in other_ranks().zip(bytes.chunks(slice.len().max(1))) {
                let place = rank * shard_bytes;
                output[place + slice.start..place + slice.end].copy_from_slice(part);
            }
        };
        message.clear();
        if topology.is_owner() {
            let own = self.slice(&chunk, topology.local_rank);
            message.resize(own.len() * other_ranks().count(), 0);
            let mut rest = message.as_mut_slice();
            let mut incoming = Vec::new();
            for node in other_nodes.clone() {
                let (place, after) = rest.split_at_mut(own.len() * topology.members(node).len());
                rest = after;
                incoming.push((topology.partner(node), place));
            }
            self.streams.receive(incoming)?;
            put(own, message);
        }
        self.begin_step(&[(0, message)], 0..topology.owners())?;
        for owner in self.other_owners() {
            let slice = self.slice(&chunk, owner);
            let length = slice.len() * other_ranks().count();
            put(slice, self.shown(owner, 0, length));
        }
        self.end_step();
        Ok(())
    }

    /// Replaces `buffer` by that of the rank `root`.
    pub fn broadcast(&mut self, root: usize, buffer: &mut [u8]) -> Result<(), CollectiveError> {
        let topology = self.topology;
        let chunks = Chunks::new(buffer.len(), CHUNK_BYTES);
        let (root_node, nodes) = (topology.node_of(root), topology.node_count());
        let place_in_chain = (topology.node + nodes - root_node) % nodes;
        let previous = (topology.node + nodes - 1) % nodes;
        for index in 0..chunks.count() {
            let chunk = chunks.range(index);
            let own = self.slice(&chunk, topology.local_rank);
            if place_in_chain == 0 {
                self.show_chunk(root - topology.own_members().start, &mut buffer[chunk])?;
            } else if topology.is_owner() {
                let place = &mut buffer[own.clone()];
                self.streams.receive([(topology.partner(previous), place)])?;
            }
            if topology.is_owner() && place_in_chain + 1 < nodes {
                let next = topology.partner((topology.node + 1) % nodes);
                self.streams.drain_to(0, next)?;
                self.streams.send(next, &buffer[own]);
            }
            if place_in_chain > 0 {
                self.show_slices(buffer, chunks.range(index))?;
            }
        }
        Ok(())
    }

    /// Shows the chunk of the local rank `root` to its node.
    fn show_chunk(&mut self, root: usize, chunk: &mut [u8]) -> Result<(), CollectiveError> {
        if root == self.topology.local_rank {
            self.begin_step(&[(0, chunk)], 0..0)?;
        } else {
            self.begin_step(&[], root..root + 1)?;
            chunk.copy_from_slice(self.shown(root, 0, chunk.len()));
        }
        self.end_step();
        Ok(())
    }

    /// Shows the slice of a chunk that this rank owns, and takes those of the other owners.
    fn show_slices(&mut self, buffer: &mut [u8], chunk: Range<usize>) -> Result<(), CollectiveError> {
        let own = self.slice(&chunk, self.topology.local_rank);
        self.begin_step(&[(0, &buffer[own])], 0..self.topology.owners())?;
        for owner in self.other_owners() {
            let slice = self.slice(&chunk, owner);
            let length = slice.len();
            buffer[slice].copy_from_slice(self.shown(owner, 0, length));
        }
        self.end_step();
        Ok(())
    }
}
