//! [`Payload`]: what goes up the tree and down again with a call.

use crate::collectives::call::CallDescriptor;
use crate::collectives::engines::aligned::AlignedBytes;
use crate::collectives::engines::reduce::reduce_in_place;
use std::ops::Range;

/// What each rank contributes, and what becomes of it. Equal calls have equal payloads; sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Payload {
    /// Nothing: the ranks meet.
    Nothing,
    /// All ranks get the shards of all, each of this size.
    Shards(usize),
    /// All ranks get the reduction, which has this size.
    Reduction(usize),
    /// Each rank gets its shard of the reduction, of this size.
    ShardOfReduction(usize),
    /// All ranks get the bytes of one.
    Broadcast {
        /// Its group index.
        root: usize,
        /// How many.
        bytes: usize,
    },
}

impl Payload {
    /// Returns what `ranks` contribute together, in a group of `size`.
    pub fn contributed_by(self, ranks: &Range<usize>, size: usize) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Shards(bytes) | Self::Reduction(bytes) => ranks.len() * bytes,
            Self::ShardOfReduction(bytes) => ranks.len() * size * bytes,
            Self::Broadcast { root, bytes } => bytes * usize::from(ranks.contains(&root)),
        }
    }

    /// Returns the length of what comes down for `ranks`: what they do not have.
    pub fn returned_to(self, ranks: &Range<usize>, size: usize) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Shards(bytes) => (size - ranks.len()) * bytes,
            Self::Reduction(bytes) => bytes,
            Self::ShardOfReduction(bytes) => ranks.len() * bytes,
            Self::Broadcast { root, bytes } => bytes * usize::from(!ranks.contains(&root)),
        }
    }

    /// Returns the result for all `size` ranks, of what they have contributed in rank order.
    pub fn combined(self, call: &CallDescriptor, size: usize, contributions: Vec<u8>) -> Vec<u8> {
        let bytes = match self {
            Self::Nothing | Self::Shards(_) | Self::Broadcast { .. } => return contributions,
            Self::Reduction(bytes) => bytes,
            Self::ShardOfReduction(bytes) => size * bytes,
        };
        // Elements are reduced where they are aligned.
        let place = bytes.next_multiple_of(AlignedBytes::ALIGNMENT);
        let mut memory = AlignedBytes::default();
        let aligned = memory.of_length((size + 1) * place);
        let (own, others) = aligned.split_at_mut(place);
        own[..bytes].copy_from_slice(&contributions[..bytes]);
        for (place, contribution) in others.chunks_mut(place.max(1)).zip(contributions.chunks(bytes.max(1))) {
            place[..bytes].copy_from_slice(contribution);
        }
        let all: Vec<&[u8]> = (0..size).map(|rank| &others[rank * place..][..bytes]).collect();
        reduce_in_place(call.element_type, call.reduction(), &mut own[..bytes], 0, &all);
        own[..bytes].to_vec()
    }

    /// Returns the result for the ranks `own`, of what came down for them and what they have contributed.
    pub fn completed(self, own: &Range<usize>, contributions: Vec<u8>, returned: Vec<u8>) -> Vec<u8> {
        match self {
            Self::Shards(bytes) => {
                let (before, after) = returned.split_at(own.start * bytes);
                [before, &contributions, after].concat()
            }
            Self::Broadcast { root, .. } if own.contains(&root) => contributions,
            _ => returned,
        }
    }

    /// Returns the parts of the result for the ranks `own` that go down to `child`.
    pub fn parts_for<'a>(self, own: &Range<usize>, child: &Range<usize>, result: &'a [u8]) -> [&'a [u8]; 2] {
        match self {
            Self::Shards(bytes) => [&result[..child.start * bytes], &result[child.end * bytes..]],
            Self::ShardOfReduction(bytes) => {
                let [start, end] = [child.start, child.end].map(|rank| (rank - own.start) * bytes);
                [&result[start..end], &[]]
            }
            Self::Broadcast { root, .. } if child.contains(&root) => [&[], &[]],
            _ => [result, &[]],
        }
    }
}
