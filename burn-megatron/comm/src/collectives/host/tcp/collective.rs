//! The collectives over TCP, made of exchanges.
//!
//! Every call begins with an exchange of descriptors between all ranks. The first bytes of the payload follow each
//! descriptor directly; no payload is read before all descriptors have come and are the same.
//!
//! A reduction sends to each rank what that rank reduces, and adds up what comes, in rank order, a
//! piece at a time: pieces of all ranks wait for each other in a scratch buffer of fixed size, and
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
use super::super::super::engine::Engine;
use super::super::super::error::CollectiveError;
use super::TcpEngine;
use super::exchange::{Exchange, Incoming, Outgoing, Sent};
use crate::collectives::reduce::reduce_in_place;
use std::ops::Range;
use std::sync::PoisonError;

/// Up to this size every rank of an all-reduce adds up everything.
const SMALL_BYTES: usize = 8 * 1024;
/// What each rank reduces of a chunk of an all-reduce between ranks of one host; whole elements.
pub(super) const NEAR_SEGMENT_BYTES: usize = 128 * 1024;
/// From this size on a broadcast between hosts goes along a chain of ranks.
const CHAIN_BYTES: usize = 256 * 1024;
/// What a rank passes on at a time in that chain.
const LINK_BYTES: usize = 128 * 1024;
/// What of each rank's contribution is received before it is reduced; whole elements.
const PIECE_BYTES: usize = 256 * 1024;

impl TcpEngine {
    /// Replaces `buffer` by its reduction over all ranks.
    pub(super) fn all_reduce_buffer(&self, call: &CallDescriptor, buffer: &mut [u8]) -> Result<(), CollectiveError> {
        let header = call.to_bytes();
        if buffer.len() <= SMALL_BYTES {
            let contribution = buffer.to_vec();
            let round = Round::open(self, call, &header, |_| &contribution)?;
            return self.reduce(call, buffer, round);
        }
        let chunk_bytes = self.segment_bytes.saturating_mul(self.health.label.size());
        for (index, chunk) in buffer.chunks_mut(chunk_bytes).enumerate() {
            // The first chunk brings the descriptors.
            let header = (index == 0).then_some(&header);
            self.all_reduce_chunk(call, chunk, header)?;
        }
        Ok(())
    }

    /// Replaces `buffer`, a chunk of the caller's, by its reduction; begins the call if it is given
    /// a `header`.
    fn all_reduce_chunk(
        &self,
        call: &CallDescriptor,
        buffer: &mut [u8],
        header: Option<&[u8; CallDescriptor::BYTES]>,
    ) -> Result<(), CollectiveError> {
        let rank = self.health.label.rank;
        let segment = |peer| self.segment(call, buffer.len(), peer);
        let segments: Vec<Range<usize>> = (0..self.health.label.size()).map(segment).collect();
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
        let round = match header {
            Some(header) => Round::open(self, call, header, part)?,
            None => Round::resume(self, call, part),
        };
        self.reduce(call, own, round)?;
        // Descriptors have been compared; the segments follow in the same streams.
        let mut round = Round::resume(self, call, |_| own);
        let mut incoming = Vec::new();
        let (mut before, mut after) = (before, after);
        for peer in self.health.label.peers() {
            let side = if peer < rank { &mut before } else { &mut after };
            let (segment, rest) = std::mem::take(side).split_at_mut(segments[peer].len());
            *side = rest;
            incoming.push(Incoming::new(peer, segment));
        }
        round.receive(&mut incoming)?;
        round.finish()
    }

    /// Fills `shard` with this rank's part of the reduction of `input`.
    pub(super) fn scatter_reduced(
        &self,
        call: &CallDescriptor,
        input: &[u8],
        shard: &mut [u8],
    ) -> Result<(), CollectiveError> {
        let header = call.to_bytes();
        for (index, range) in self.chunks_of_shard(shard.len()).enumerate() {
            let length = shard.len();
            let part = |peer: usize| &input[peer * length..(peer + 1) * length][range.clone()];
            let own = &mut shard[range.clone()];
            own.copy_from_slice(part(self.health.label.rank));
            let round = match index {
                0 => Round::open(self, call, &header, part)?,
                _ => Round::resume(self, call, part),
            };
            self.reduce(call, own, round)?;
        }
        Ok(())
    }

    /// Fills `output` with the shards of all ranks.
    pub(super) fn gather_shards(
        &self,
        call: &CallDescriptor,
        shard: &[u8],
        output: &mut [u8],
    ) -> Result<(), CollectiveError> {
        let header = call.to_bytes();
        for (index, range) in self.chunks_of_shard(shard.len()).enumerate() {
            let chunk = &shard[range.clone()];
            let mut round = match index {
                0 => Round::open(self, call, &header, |_| chunk)?,
                _ => Round::resume(self, call, |_| chunk),
            };
            let mut incoming = Vec::new();
            let mut rest = &mut *output;
            for peer in 0..self.health.label.size() {
                let (place, after) = rest.split_at_mut(shard.len());
                rest = after;
                let place = &mut place[range.clone()];
                if peer == self.health.label.rank {
                    place.copy_from_slice(chunk);
                } else {
                    incoming.push(Incoming::new(peer, place));
                }
            }
            round.receive(&mut incoming)?;
            round.finish()?;
        }
        Ok(())
    }

    /// Returns the parts of a shard that are gathered or scattered one after the other; an empty shard has one too, for
    /// the descriptors.
    fn chunks_of_shard(&self, length: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let size = self.segment_bytes;
        (0..length.div_ceil(size).max(1)).map(move |index| {
            let start = index * size;
            start..start.saturating_add(size).min(length)
        })
    }

    /// Replaces `buffer` by the root's.
    pub(super) fn broadcast_buffer(&self, call: &CallDescriptor, buffer: &mut [u8]) -> Result<(), CollectiveError> {
        let header = call.to_bytes();
        let root = call.other_side();
        if self.is_between_hosts && buffer.len() > CHAIN_BYTES && self.health.label.size() > 2 {
            self.barrier(call)?;
            return self.pass_along(call, root, buffer);
        }
        if root == self.health.label.rank {
            return Round::open(self, call, &header, |_| buffer)?.finish();
        }
        let mut round = Round::open(self, call, &header, |_| &[])?;
        round.receive(&mut [Incoming::new(root, buffer)])?;
        round.finish()
    }

    /// Replaces `buffer` by the root's, which goes from each rank to the next, a link at a time: every rank sends it
    /// once, where the root alone would send it to all.
    fn pass_along(&self, call: &CallDescriptor, root: usize, buffer: &mut [u8]) -> Result<(), CollectiveError> {
        let (rank, size) = (self.health.label.rank, self.health.label.size());
        let (previous, next) = ((rank + size - 1) % size, (rank + 1) % size);
        let mut streams = self.streams(call);
        for link in buffer.chunks_mut(LINK_BYTES) {
            if rank != root {
                streams.receive(&mut [(previous, &mut *link)])?;
            }
            if next != root {
                streams.drain_to(0, next)?;
                streams.send(next, link);
            }
        }
        streams.finish()
    }

    /// Reduces what comes for this rank in a round that sends each rank its part into `own`, which
    /// holds this rank's own contribution.
    fn reduce(&self, call: &CallDescriptor, own: &mut [u8], mut round: Round<'_>) -> Result<(), CollectiveError> {
        let label = &self.health.label;
        let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        let scratch = scratch.of_length(label.size() * PIECE_BYTES);
        for piece in own.chunks_mut(PIECE_BYTES) {
            let places = scratch.chunks_mut(PIECE_BYTES).enumerate();
            let mut incoming: Vec<_> = places
                .filter(|(peer, _)| *peer != label.rank)
                .map(|(peer, place)| Incoming::new(peer, &mut place[..piece.len()]))
                .collect();
            round.receive(&mut incoming)?;
            let contributions: Vec<&[u8]> = scratch.chunks(PIECE_BYTES).map(|place| &place[..piece.len()]).collect();
            let op = call.reduction();
            reduce_in_place(call.element_type, op, piece, label.rank, &contributions);
        }
        round.finish()
    }

    /// Returns the bytes of an all-reduce that the rank with this group index reduces.
    fn segment(&self, call: &CallDescriptor, length: usize, rank: usize) -> Range<usize> {
        let element = call.element_type.size_bytes();
        let size = (length / element).div_ceil(self.health.label.size()) * element;
        (rank * size).min(length)..((rank + 1) * size).min(length)
    }
}

/// The sending side of one call, open while parts are received.
struct Round<'a> {
    exchange: Exchange<'a>,
    outgoing: Vec<Outgoing<'a>>,
}

impl<'a> Round<'a> {
    /// Begins a call: sends the descriptor `header` to all ranks, and what has room of each one's
    /// `part`; compares the descriptors that come.
    fn open(
        engine: &'a TcpEngine,
        call: &'a CallDescriptor,
        header: &'a [u8],
        part: impl Fn(usize) -> &'a [u8],
    ) -> Result<Self, CollectiveError> {
        let mut round = Self::with_header(engine, call, header, part);
        let label = &engine.health.label;
        let mut headers = vec![[0; CallDescriptor::BYTES]; label.size()];
        let mut incoming: Vec<_> = headers
            .iter_mut()
            .enumerate()
            .filter(|(peer, _)| *peer != label.rank)
            .map(|(peer, header)| Incoming::new(peer, header))
            .collect();
        round.exchange.run(&mut round.outgoing, &mut incoming, Sent::Headers)?;
        headers[label.rank] = call.to_bytes();
        let calls = headers
            .iter()
            .enumerate()
            .map(|(peer, header)| engine.decode(call, peer, header))
            .collect::<Result<Vec<_>, _>>()?;
        label.compare_calls(&calls)?;
        Ok(round)
    }

    /// Continues a call whose descriptors have been compared.
    fn resume(engine: &'a TcpEngine, call: &'a CallDescriptor, part: impl Fn(usize) -> &'a [u8]) -> Self {
        Self::with_header(engine, call, &[], part)
    }

    fn with_header(
        engine: &'a TcpEngine,
        call: &'a CallDescriptor,
        header: &'a [u8],
        part: impl Fn(usize) -> &'a [u8],
    ) -> Self {
        let peers = engine.health.label.peers();
        let outgoing: Vec<_> = peers.map(|peer| Outgoing::new(peer, header, part(peer))).collect();
        engine.count_bytes(outgoing.iter().map(|out| out.payload.len()).sum());
        Self {
            exchange: Exchange::new(engine, call),
            outgoing,
        }
    }

    /// Receives `incoming` while sending continues.
    fn receive(&mut self, incoming: &mut [Incoming<'_>]) -> Result<(), CollectiveError> {
        self.exchange.run(&mut self.outgoing, incoming, Sent::Something)
    }

    /// Sends the rest.
    fn finish(mut self) -> Result<(), CollectiveError> {
        self.exchange.run(&mut self.outgoing, &mut [], Sent::All)
    }
}
