//! Where things are in a group's shared segment. Its size depends on the number of ranks only,
//! never on a message.
//!
//! ```text
//! header       digest of the group, so that a wrong file is never taken for the segment
//! rank blocks  one per rank: progress flags, current calls, disconnect reason
//! staging      per rank SLOTS areas of CHUNK_BYTES: what collectives hand over
//! mailboxes    one per ordered pair of ranks: a ring of RING_BYTES for send and recv
//! tree rings   two per rank but the first: rings of TREE_RING_BYTES from and to that one
//! ```
//!
//! Everything that is not an area or a ring is atomic, so it is shared by plain references.

use super::flag::Flag;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// The largest part of a message that a rank stages at a time.
pub(in super::super) const CHUNK_BYTES: usize = 256 * 1024;
/// Staging areas per rank: while one is reduced, the next is filled.
pub(in super::super) const SLOTS: usize = 2;
/// What a mailbox holds before its sender has to wait.
pub(super) const RING_BYTES: usize = 128 * 1024;
/// What a ring of the tree holds: a small call, or a piece of a larger one.
pub(super) const TREE_RING_BYTES: usize = 16 * 1024;
/// The longest disconnect reason; the rest of a longer one is cut off.
pub(super) const DISCONNECT_REASON_BYTES: usize = 896;

/// The start of the segment.
#[repr(C)]
pub(super) struct Header {
    /// See [`Rendezvous::digest`](super::super::rendezvous::Rendezvous::digest).
    pub digest: [AtomicU8; 32],
}

/// What one rank tells the others; written by that rank only, except for sleepers' counts.
#[repr(C, align(64))]
pub(in super::super) struct RankBlock {
    /// Steps whose contribution is in the staging area.
    pub staged: Flag,
    /// Steps whose reduced slice is in the staging area.
    pub reduced: Flag,
    /// Steps that this rank needs nothing of any more.
    pub taken: Flag,
    /// Not 0 when this rank has given the group up.
    pub left: AtomicU32,
    /// Length of `disconnect_reason`, written before `left`.
    pub disconnect_reason_length: AtomicU32,
    /// By slot: the encoded call that the slot's step begins.
    pub calls: [[AtomicU64; 4]; SLOTS],
    /// Why this rank has given the group up.
    pub disconnect_reason: [AtomicU8; DISCONNECT_REASON_BYTES],
}

/// The progress of one mailbox, each side on a cache line of its own.
#[repr(C)]
pub(super) struct MailboxControl {
    /// Bytes put in, modulo 2^32; written by the sender.
    pub written: Line<Flag>,
    /// Bytes taken out, modulo 2^32; written by the receiver.
    pub read: Line<Flag>,
}

/// A value on cache lines of its own.
#[repr(C, align(128))]
pub(super) struct Line<T>(pub T);

/// Offsets into the segment of a group of `ranks` ranks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    ranks: usize,
}

const PAGE: usize = 4096;
const MAILBOX_BYTES: usize = size_of::<MailboxControl>() + RING_BYTES;
const TREE_MAILBOX_BYTES: usize = size_of::<MailboxControl>() + TREE_RING_BYTES;

impl Layout {
    pub fn new(ranks: usize) -> Self {
        Self { ranks }
    }

    pub fn rank_block(&self, rank: usize) -> usize {
        assert!(rank < self.ranks, "rank {rank} of {}", self.ranks);
        PAGE + rank * size_of::<RankBlock>()
    }

    pub fn area(&self, rank: usize, slot: usize) -> usize {
        assert!(rank < self.ranks && slot < SLOTS, "rank {rank}, slot {slot}");
        self.areas() + (rank * SLOTS + slot) * CHUNK_BYTES
    }

    /// The mailbox from one rank to another; no rank has one to itself.
    pub fn mailbox(&self, from: usize, to: usize) -> usize {
        let valid = from < self.ranks && to < self.ranks && from != to;
        assert!(valid, "mailbox from {from} to {to} of {}", self.ranks);
        let index = from * (self.ranks - 1) + to - usize::from(to > from);
        self.mailboxes() + index * MAILBOX_BYTES
    }

    /// The ring of the tree from one rank to another, one of which is the first.
    pub fn tree_ring(&self, from: usize, to: usize) -> usize {
        let (other, is_from_first) = if from == 0 { (to, true) } else { (from, false) };
        let valid = from.min(to) == 0 && other > 0 && other < self.ranks;
        assert!(valid, "tree ring from {from} to {to} of {}", self.ranks);
        self.tree_rings() + (2 * (other - 1) + usize::from(is_from_first)) * TREE_MAILBOX_BYTES
    }

    pub fn total(&self) -> usize {
        self.tree_rings() + 2 * (self.ranks - 1) * TREE_MAILBOX_BYTES
    }

    fn areas(&self) -> usize {
        (PAGE + self.ranks * size_of::<RankBlock>()).next_multiple_of(PAGE)
    }

    fn tree_rings(&self) -> usize {
        self.mailboxes() + self.ranks * (self.ranks - 1) * MAILBOX_BYTES
    }

    fn mailboxes(&self) -> usize {
        self.areas() + self.ranks * SLOTS * CHUNK_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_overlap_and_are_aligned() {
        for ranks in 2..6 {
            let layout = Layout::new(ranks);
            let mut parts = vec![(0, size_of::<Header>())];
            for rank in 0..ranks {
                parts.push((layout.rank_block(rank), size_of::<RankBlock>()));
                for slot in 0..SLOTS {
                    parts.push((layout.area(rank, slot), CHUNK_BYTES));
                }
                for to in (0..ranks).filter(|&to| to != rank) {
                    parts.push((layout.mailbox(rank, to), MAILBOX_BYTES));
                }
            }
            for rank in 1..ranks {
                let is_aligned = |offset: usize| offset.is_multiple_of(align_of::<MailboxControl>());
                assert!(is_aligned(layout.tree_ring(rank, 0)) && is_aligned(layout.tree_ring(0, rank)));
                assert!(is_aligned(layout.mailbox(rank, 0)) && is_aligned(layout.mailbox(0, rank)));
                parts.extend([(rank, 0), (0, rank)].map(|(from, to)| (layout.tree_ring(from, to), TREE_MAILBOX_BYTES)));
            }
            parts.sort_unstable();
            assert!(parts.iter().all(|(offset, _)| offset % 64 == 0));
            assert!(parts.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
            let (offset, size) = parts[parts.len() - 1];
            assert_eq!(offset + size, layout.total());
        }
    }
}
