//! The engine's operations: the collectives over TCP, made of exchanges.
//!
//! Where there is a `tree`, calls with few bytes go over it, and ranks meet there for larger ones.
//!
//! Every other call begins with an exchange of descriptors between all ranks. The first bytes of the payload follow
//! each descriptor directly; no payload is read before all descriptors have come and are the same.
//!
//! A reduction sends to each rank what that rank reduces, and adds up what comes, in rank order, a
//! piece at a time: pieces of all ranks wait for each other in a scratch buffer of a piece per rank, and
//! a rank that is ahead is not read until the others have caught up, so memory stays bounded. A
//! large all-reduce is such a reduction of one segment per rank, then a gather of the segments; in
//! a small one every rank reduces everything, which saves a round trip.
//!
//! Between hosts a large broadcast to more than one rank is passed on along the ranks, so that no rank sends it twice;
//! on one host, where the processors do the work of all ranks, the root sends it to each.
//!
//! Between ranks of one host the processors copy everything, so their caches decide: the buffer is
//! reduced, gathered and scattered a chunk at a time, and what one rank writes is still in the cache when the
//! other reads it. Between hosts it is one chunk, because the network would wait between chunks.

use super::super::super::call::CallDescriptor;
use super::super::super::error::CollectiveError;
use super::super::parts::{Chunks, slice};
use super::TcpEngine;
use super::exchange::Exchange;
use super::links::Presence;
use super::tree::{self, Payload, Shape};
use crate::collectives::engines::aligned::AlignedBytes;
use crate::collectives::engines::engine::Engine;
use crate::collectives::engines::reduce::reduce_in_place;
use crate::collectives::rendezvous::DISCONNECT_REASON_WAIT;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Up to this size every rank of an all-reduce adds up everything.
const SMALL_BYTES: usize = tree::MOST_REDUCED_BYTES;
/// What each rank reduces of a chunk of an all-reduce between ranks of one host; whole elements.
pub(super) const NEAR_SEGMENT_BYTES: usize = 128 * 1024;
/// From this size on a broadcast between hosts goes along a chain of ranks.
const CHAIN_BYTES: usize = 256 * 1024;
/// What a rank passes on at a time in that chain.
const LINK_BYTES: usize = 128 * 1024;
/// What of each rank's contribution is received before it is reduced; whole elements.
const PIECE_BYTES: usize = 256 * 1024;

impl Engine for TcpEngine {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn place(&self) -> (usize, usize) {
        self.health.label.place()
    }

    fn all_gather(&self, call: &CallDescriptor, shard: &[u8], output: &mut [u8]) -> Result<(), CollectiveError> {
        if let Some(tree) = self.tree_for(output.len(), tree::MOST_BYTES) {
            output.copy_from_slice(&self.over_tree(tree, call, Payload::Shards(shard.len()), shard)?);
            return Ok(());
        }
        let (rank, size) = self.health.label.place();
        for (index, range) in self.chunks_of_shard(shard.len()).enumerate() {
            let chunk = &shard[range.clone()];
            let mut exchange = self.exchange_of_chunk(call, index, |_| chunk)?;
            let mut rest = &mut *output;
            let mut places: Vec<_> = (0..size)
                .map(|peer| {
                    let (place, after) = std::mem::take(&mut rest).split_at_mut(shard.len());
                    rest = after;
                    (peer, &mut place[range.clone()])
                })
                .collect();
            places.remove(rank).1.copy_from_slice(chunk);
            exchange.receive(places)?;
            exchange.finish()?;
        }
        Ok(())
    }

    fn all_reduce(&self, call: &CallDescriptor, buffer: &mut [u8]) -> Result<(), CollectiveError> {
        if let Some(tree) = self.tree_for(buffer.len(), tree::MOST_REDUCED_BYTES) {
            let result = self.over_tree(tree, call, Payload::Reduction(buffer.len()), buffer)?;
            buffer.copy_from_slice(&result);
            return Ok(());
        }
        if buffer.len() <= SMALL_BYTES {
            let contribution = buffer.to_vec();
            let exchange = self.exchange_of_chunk(call, 0, |_| &contribution)?;
            return self.reduce(call, buffer, exchange);
        }
        let chunk_bytes = self.segment_bytes.saturating_mul(self.health.label.size());
        for (index, chunk) in buffer.chunks_mut(chunk_bytes).enumerate() {
            self.all_reduce_chunk(call, chunk, index)?;
        }
        Ok(())
    }

    fn reduce_scatter(&self, call: &CallDescriptor, input: &[u8], shard: &mut [u8]) -> Result<(), CollectiveError> {
        let length = shard.len();
        if let Some(tree) = self.tree_for(input.len(), tree::MOST_REDUCED_BYTES) {
            shard.copy_from_slice(&self.over_tree(tree, call, Payload::ShardOfReduction(length), input)?[..length]);
            return Ok(());
        }
        for (index, range) in self.chunks_of_shard(length).enumerate() {
            let part = |peer: usize| &input[peer * length..(peer + 1) * length][range.clone()];
            let own = &mut shard[range.clone()];
            own.copy_from_slice(part(self.health.label.rank));
            self.reduce(call, own, self.exchange_of_chunk(call, index, part)?)?;
        }
        Ok(())
    }

    fn broadcast(&self, call: &CallDescriptor, buffer: &mut [u8]) -> Result<(), CollectiveError> {
        let root = call.other_side();
        let bytes = buffer.len();
        if let Some(tree) = self.tree_for(bytes, CHAIN_BYTES) {
            let own = if root == self.health.label.rank { &*buffer } else { &[] };
            let result = self.over_tree(tree, call, Payload::Broadcast { root, bytes }, own)?;
            buffer.copy_from_slice(&result);
            return Ok(());
        }
        if self.is_between_hosts && buffer.len() > CHAIN_BYTES && self.health.label.size() > 2 {
            self.barrier(call)?;
            return self.pass_along(call, root, buffer);
        }
        if root == self.health.label.rank {
            return self.exchange_of_chunk(call, 0, |_| buffer)?.finish();
        }
        let mut exchange = self.exchange_of_chunk(call, 0, |_| &[])?;
        exchange.receive([(root, buffer)])?;
        exchange.finish()
    }

    fn send(&self, call: &CallDescriptor, buffer: &[u8]) -> Result<(), CollectiveError> {
        self.send_message(call, buffer)
    }

    fn recv(&self, call: &CallDescriptor, buffer: &mut [u8]) -> Result<(), CollectiveError> {
        self.receive_message(call, buffer)
    }

    fn disconnect_reason(&self, peer: usize) -> Option<String> {
        // A rank that leaves closes its connections after its words are in the store.
        match self.links.presence_of(peer, DISCONNECT_REASON_WAIT) {
            Presence::Present => None,
            Presence::Gone => self.rendezvous.disconnect_reason(peer, DISCONNECT_REASON_WAIT),
            Presence::Unknown => self.rendezvous.disconnect_reason(peer, Duration::ZERO),
        }
    }

    fn bytes_communicated(&self) -> u64 {
        self.bytes_communicated.load(Ordering::Relaxed)
    }

    fn leave(&self, cause: &str) {
        self.rendezvous.send_disconnect_reason(cause);
        self.links.leave();
    }
}

impl TcpEngine {
    /// Returns the tree if there is one and calls of `bytes` bytes go over it, which are at most `most`.
    fn tree_for(&self, bytes: usize, most: usize) -> Option<&Shape> {
        self.tree.as_ref().filter(|_| bytes <= most)
    }

    /// Sends each rank its `part` of chunk `index` of a message, the first of which begins the call. Many ranks first
    /// meet over the tree.
    ///
    /// # Errors
    /// As [`Exchange::open`].
    fn exchange_of_chunk<'a>(
        &'a self,
        call: &'a CallDescriptor,
        index: usize,
        part: impl Fn(usize) -> &'a [u8],
    ) -> Result<Exchange<'a>, CollectiveError> {
        match (index, &self.tree) {
            (0, None) => Exchange::open(self, call, part),
            (0, Some(tree)) => {
                self.over_tree(tree, call, Payload::Nothing, &[])?;
                Ok(Exchange::resume(self, call, part))
            }
            _ => Ok(Exchange::resume(self, call, part)),
        }
    }

    /// Replaces `buffer`, chunk `index` of the caller's, by its reduction.
    fn all_reduce_chunk(&self, call: &CallDescriptor, buffer: &mut [u8], index: usize) -> Result<(), CollectiveError> {
        let (rank, size) = self.health.label.place();
        let element = call.element_type.size_bytes();
        let segments: Vec<Range<usize>> = (0..size).map(|peer| slice(buffer.len(), size, element, peer)).collect();
        let own = segments[rank].clone();
        let (before, rest) = buffer.split_at_mut(own.start);
        let (own, after) = rest.split_at_mut(own.len());
        let after_start = segments[rank].end;
        let part = |peer: usize| {
            let Range { start, end } = segments[peer].clone();
            if peer < rank {
                &before[start..end]
            } else {
                &after[start - after_start..end - after_start]
            }
        };
        self.reduce(call, own, self.exchange_of_chunk(call, index, part)?)?;
        // Descriptors have been compared; the segments follow in the same streams.
        let mut exchange = Exchange::resume(self, call, |_| own);
        let (mut before, mut after) = (before, after);
        exchange.receive(self.health.label.peers().map(|peer| {
            let side = if peer < rank { &mut before } else { &mut after };
            let (segment, rest) = std::mem::take(side).split_at_mut(segments[peer].len());
            *side = rest;
            (peer, segment)
        }))?;
        exchange.finish()
    }

    /// Returns the parts of a shard that are gathered or scattered one after the other.
    fn chunks_of_shard(&self, length: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        Chunks::new(length, self.segment_bytes).ranges()
    }

    /// Replaces `buffer` by the root's, which goes from each rank to the next, a link at a time: every rank sends it
    /// once, where the root alone would send it to all.
    fn pass_along(&self, call: &CallDescriptor, root: usize, buffer: &mut [u8]) -> Result<(), CollectiveError> {
        let (rank, size) = self.health.label.place();
        let (previous, next) = ((rank + size - 1) % size, (rank + 1) % size);
        let mut streams = self.streams(call);
        for link in buffer.chunks_mut(LINK_BYTES) {
            if rank != root {
                streams.receive([(previous, &mut *link)])?;
            }
            if next != root {
                streams.drain_to(0, next)?;
                streams.send(next, link);
            }
        }
        streams.finish()
    }

    /// Reduces what comes for this rank in an exchange that sends each rank its part into `own`, which
    /// holds this rank's own contribution.
    fn reduce(&self, call: &CallDescriptor, own: &mut [u8], mut exchange: Exchange<'_>) -> Result<(), CollectiveError> {
        let (rank, size) = self.health.label.place();
        let mut scratch = self.scratch.lock();
        let place_bytes = own.len().min(PIECE_BYTES).next_multiple_of(AlignedBytes::ALIGNMENT);
        let scratch = scratch.of_length(size * place_bytes);
        for piece in own.chunks_mut(PIECE_BYTES) {
            let length = piece.len();
            let places = scratch.chunks_mut(place_bytes).enumerate();
            let others = places.filter(|(peer, _)| *peer != rank);
            exchange.receive(others.map(|(peer, place)| (peer, &mut place[..length])))?;
            let contributions: Vec<&[u8]> = scratch.chunks(place_bytes).map(|place| &place[..length]).collect();
            reduce_in_place(call.element_type, call.reduction(), piece, rank, &contributions);
        }
        exchange.finish()
    }
}
