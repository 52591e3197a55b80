//! One large collective of one rank on its way: steps in the shared memory of its node, streams to and from the owners
//! of its slice in other nodes.
//!
//! # Why this does not block
//!
//! A step waits for ranks of the node, a receive for a rank of another node, and ranks wait for each other in turn. Two
//! rules prevent a cycle. A rank keeps sending while it waits, in a step or in a receive, so a receive waits only until
//! its sender has come to the send. And `reduction` and `spreading` order what each rank does by chunks in such a way
//! that everything waits only for what comes before it in that order.

use super::super::super::error::CollectiveError;
use super::super::parts::{LINE, slice};
use super::super::shared_memory::collective::Round;
use super::super::shared_memory::layout::SLOTS;
use super::super::tcp::exchange::Exchange;
use super::topology::Topology;
use std::ops::Range;

/// A large collective that all ranks have come to.
pub(super) struct CollectiveInFlight<'a, 'r> {
    pub topology: &'a Topology,
    pub streams: Exchange<'a>,
    /// In the shared memory of the node, if it has other ranks.
    round: Option<&'a mut Round<'r>>,
    /// Steps finished.
    steps: usize,
    /// The local ranks that the step on its way has waited for.
    has_shown: Range<usize>,
}

impl<'a, 'r> CollectiveInFlight<'a, 'r> {
    /// Returns a collective that begins.
    pub fn new(topology: &'a Topology, round: Option<&'a mut Round<'r>>, streams: Exchange<'a>) -> Self {
        Self {
            topology,
            streams,
            round,
            steps: 0,
            has_shown: 0..0,
        }
    }

    /// Sends what is left.
    pub fn finish(self) -> Result<(), CollectiveError> {
        self.streams.finish()
    }

    /// Begins a step in the node: shows the other ranks `parts`, each at its place in this rank's area, and waits until
    /// the local ranks `from` have shown theirs.
    pub fn begin_step(&mut self, parts: &[(usize, &[u8])], from: Range<usize>) -> Result<(), CollectiveError> {
        let Some(round) = self.round.as_deref_mut() else {
            return Ok(());
        };
        let (index, members, shown) = (self.steps, self.topology.own_members(), from.clone());
        let local_rank = self.topology.local_rank;
        let peers = (0..members.len()).filter(move |peer| *peer != local_rank);
        // In the first step all wait for all.
        let from = peers.clone().filter(move |peer| index == 0 || from.contains(peer));
        let has_left = |round: &Round<'_>, peer: usize| {
            let free = round.done(index).wrapping_sub(SLOTS as u32);
            round.block(peer).taken.has_reached(free)
        };
        let has_staged = |round: &Round<'_>, peer: usize| round.block(peer).staged.has_reached(round.done(index));
        let missing = |ranks: Vec<usize>| ranks.into_iter().map(|peer| members.start + peer).collect();
        self.streams.send_until(
            || peers.clone().all(|peer| has_left(round, peer)),
            || missing(peers.clone().filter(|peer| !has_left(round, *peer)).collect()),
        )?;
        round.stage(index, |area| {
            for (offset, bytes) in parts {
                // SAFETY: `stage` gives the area to its owner alone.
                unsafe { area.write(*offset, bytes) };
            }
            parts.iter().map(|(_, bytes)| bytes.len()).sum()
        })?;
        self.streams.send_until(
            || from.clone().all(|peer| has_staged(round, peer)),
            || missing(from.clone().filter(|peer| !has_staged(round, *peer)).collect()),
        )?;
        round.await_staged(index, from)?;
        self.has_shown = shown;
        Ok(())
    }

    /// Returns what another local rank shows in the step on its way, which has waited for it.
    ///
    /// # Panics
    /// When there is no other rank on this node, or the step has not waited for this one.
    pub fn shown(&self, local_rank: usize, offset: usize, length: usize) -> &[u8] {
        let round = self.round.as_deref().expect("only a node of several ranks takes steps");
        let is_other = local_rank != self.topology.local_rank;
        assert!(
            is_other && self.has_shown.contains(&local_rank),
            "step {} has not waited for the local rank {local_rank}",
            self.steps
        );
        // SAFETY: the step has waited for the rank, is not finished, since `end_step` forgets for whom it has waited
        // and cannot be called while the result lives, and a collective only stages: no rank reduces in its area.
        unsafe { round.staged(local_rank, self.steps, offset, length) }
    }

    /// Ends a step: nothing that was shown is used any more.
    pub fn end_step(&mut self) {
        if let Some(round) = self.round.as_deref_mut() {
            round.finish(self.steps);
            self.steps += 1;
            self.has_shown = 0..0;
        }
    }

    /// Returns the slice of a chunk that belongs to the local rank `owner`, in the coordinates of the message; it is
    /// empty for who owns none.
    pub fn slice(&self, chunk: &Range<usize>, owner: usize) -> Range<usize> {
        let slice = slice(chunk.len(), self.topology.owners(), LINE, owner);
        chunk.start + slice.start..chunk.start + slice.end
    }

    /// Returns the other local ranks that own slices.
    pub fn other_owners(&self) -> impl Iterator<Item = usize> + use<> {
        let local_rank = self.topology.local_rank;
        (0..self.topology.owners()).filter(move |owner| *owner != local_rank)
    }
}

/// Returns what two ranges have in common; an empty range inside the first where that is nothing.
pub(super) fn common(first: &Range<usize>, second: &Range<usize>) -> Range<usize> {
    let start = second.start.clamp(first.start, first.end);
    start..second.end.clamp(start, first.end)
}
