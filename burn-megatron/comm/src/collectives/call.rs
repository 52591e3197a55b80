//! What a call is: the descriptor that ranks compare with each other, and the group it belongs to.

use super::element::ElementType;
use super::error::CollectiveError;
use std::fmt;
use std::sync::Arc;
use strum::VariantArray;

/// How values of different ranks become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ReduceOp {
    /// The sum, in rank order. Integers wrap.
    Sum,
    /// The sum divided by the number of ranks; an error for integers.
    Mean,
    /// The largest value; a NaN on any rank gives NaN.
    Max,
}

impl ReduceOp {
    /// Returns the name, as messages have it.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The operations of a group, in the order of their codes in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Operation {
    /// Every rank gets the reduction over all ranks.
    AllReduce,
    /// Every rank gets every rank's shard.
    AllGather,
    /// Every rank gets its shard of the reduction.
    ReduceScatter,
    /// Every rank gets the root's buffer.
    Broadcast,
    /// One rank's buffer goes to another.
    Send,
    /// One rank's buffer comes from another.
    Recv,
    /// No rank leaves before all have come.
    Barrier,
    /// Every rank gets a buffer that the others may reach.
    Allocate,
    /// As [`AllReduce`](Self::AllReduce), of a shared buffer.
    AllReduceShared,
    /// As [`AllGather`](Self::AllGather), inside a shared buffer.
    AllGatherShared,
    /// As [`ReduceScatter`](Self::ReduceScatter), inside a shared buffer.
    ReduceScatterShared,
}

impl Operation {
    /// Returns the name, as messages have it.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns whether the call is on a shared buffer.
    pub(super) fn names_buffer(self) -> bool {
        matches!(
            self,
            Operation::AllReduceShared | Operation::AllGatherShared | Operation::ReduceScatterShared
        )
    }
}

/// One call as the ranks compare it: two ranks that take part must describe it alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallDescriptor {
    /// Number of the call: among the group's collectives, or among the transfers from one rank to
    /// one other.
    pub sequence: u64,
    /// What is done.
    pub operation: Operation,
    /// Type of the elements; `U8` for a barrier.
    pub element_type: ElementType,
    /// Elements in this rank's buffer; in its shard for `all_gather`, `reduce_scatter` and the same of shared buffers.
    pub length: usize,
    /// Group index of the root of a broadcast, or of the other side of a transfer.
    pub peer: Option<usize>,
    /// How values are reduced, for the reductions.
    pub reduce_op: Option<ReduceOp>,
    /// The shared buffer, by the number of the call that allocated it, for the operations on one. These have no peer.
    pub buffer: Option<u64>,
}

/// Marks a word as part of a descriptor, so that garbage is not taken for one.
const MAGIC: u64 = 0x6275_726e;
/// Stands for "none" in a byte of an encoded descriptor.
const NONE: u64 = 0xff;

impl CallDescriptor {
    /// Size of an encoded descriptor.
    pub const BYTES: usize = 32;

    /// Returns the reduction.
    ///
    /// # Panics
    /// When the call is not a reduction.
    pub fn reduction(&self) -> ReduceOp {
        self.reduce_op.expect("all_reduce and reduce_scatter carry a reduce op")
    }

    /// Returns the root of a broadcast or the other side of a transfer.
    ///
    /// # Panics
    /// When the call is neither.
    pub fn other_side(&self) -> usize {
        self.peer.expect("broadcast, send and recv name another rank")
    }

    /// Returns the descriptor as it travels in a stream.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(self.encode()) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote; `None` when the bytes are no descriptor.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Option<CallDescriptor> {
        let (words, _) = bytes.as_chunks::<8>();
        Self::decode(std::array::from_fn(|index| u64::from_le_bytes(words[index])))
    }

    /// Returns the descriptor as four words: sequence, codes, length, peer or buffer.
    pub(crate) fn encode(&self) -> [u64; 4] {
        let reduce = self.reduce_op.map_or(NONE, |op| op as u64);
        let codes = MAGIC << 32 | self.operation as u64 | (self.element_type as u64) << 8 | reduce << 16;
        let peer = self.peer.map(|peer| peer as u64);
        [
            self.sequence,
            codes,
            self.length as u64,
            peer.or(self.buffer).unwrap_or(u64::MAX),
        ]
    }

    /// Reads what [`encode`](Self::encode) wrote; `None` when the words are no descriptor.
    pub(crate) fn decode(words: [u64; 4]) -> Option<CallDescriptor> {
        let [sequence, codes, length, other] = words;
        let byte = |index: u32| (codes >> (8 * index)) as u8 as usize;
        // The byte that stands for nothing is zero, so a descriptor has one encoding.
        if codes >> 32 != MAGIC || byte(3) != 0 {
            return None;
        }
        let reduce_op = match codes >> 16 & 0xff {
            NONE => None,
            _ => Some(*ReduceOp::VARIANTS.get(byte(2))?),
        };
        let operation = *Operation::VARIANTS.get(byte(0))?;
        let other = (other != u64::MAX).then_some(other);
        let (peer, buffer) = if operation.names_buffer() {
            (None, other)
        } else {
            (other, None)
        };
        Some(CallDescriptor {
            sequence,
            operation,
            element_type: *ElementType::VARIANTS.get(byte(1))?,
            length: usize::try_from(length).ok()?,
            peer: peer.map(usize::try_from).transpose().ok()?,
            reduce_op,
            buffer,
        })
    }
}

/// The name and the ranks of a group, as messages show them: `tensor [0, 1]`.
#[derive(Clone, Debug)]
pub struct GroupLabel {
    /// The name that the group was connected with.
    pub name: Arc<str>,
    /// Global ranks, ascending.
    pub ranks: Arc<[usize]>,
    /// This rank's index in `ranks`.
    pub rank: usize,
}

impl GroupLabel {
    /// Returns the number of ranks.
    pub fn size(&self) -> usize {
        self.ranks.len()
    }

    /// Returns this rank's index and the number of ranks.
    pub fn place(&self) -> (usize, usize) {
        (self.rank, self.size())
    }

    /// Returns the group indices of the other ranks.
    pub fn peers(&self) -> impl Iterator<Item = usize> + Clone + use<> {
        let rank = self.rank;
        (0..self.size()).filter(move |&peer| peer != rank)
    }

    /// Returns the ranks as messages show them: `[0, 1]`.
    pub fn listed_ranks(&self) -> String {
        crate::ranks::listed_ranks(&self.ranks)
    }

    /// Returns the call in words: `all_reduce sum of 64 f32 (call 17)`.
    pub fn describe(&self, call: &CallDescriptor) -> String {
        format!("{} (call {})", self.describe_kind(call), call.sequence)
    }

    /// Returns the call in words, without its number: `all_reduce sum of 64 f32`.
    pub fn describe_kind(&self, call: &CallDescriptor) -> String {
        let CallDescriptor {
            operation,
            element_type,
            length,
            peer,
            reduce_op,
            buffer,
            ..
        } = call;
        if *operation == Operation::Barrier {
            return operation.to_string();
        }
        let reduce = reduce_op.map_or(String::new(), |op| format!(" {op}"));
        let direction = if *operation == Operation::Send { "to" } else { "from" };
        // A descriptor from another rank may name a rank that this group does not have.
        let peer = peer.map_or(String::new(), |peer| match self.ranks.get(peer) {
            Some(rank) => format!(" {direction} rank {rank}"),
            None => format!(" {direction} rank with unknown index {peer}"),
        });
        let buffer = buffer.map_or(String::new(), |number| format!(" in the buffer of call {number}"));
        format!("{operation}{reduce} of {length} {element_type}{peer}{buffer}")
    }

    /// Returns the call in words, or `connect` for what happens before the first call.
    pub fn describe_activity(&self, call: Option<&CallDescriptor>) -> String {
        call.map_or_else(|| "connect".to_string(), |call| self.describe(call))
    }

    /// Compares the calls of all ranks, by group index.
    ///
    /// The first rank that differs from the group's first rank is named, so every rank reports
    /// the same pair.
    ///
    /// # Errors
    /// [`CollectiveError::Mismatch`] when two calls differ.
    pub fn compare_calls(&self, calls: &[CallDescriptor]) -> Result<(), CollectiveError> {
        match calls.iter().position(|call| *call != calls[0]) {
            None => Ok(()),
            Some(index) => Err(self.mismatch(index, &calls[index], 0, &calls[0])),
        }
    }

    /// Compares a transfer's two sides; `sent` is `sender`'s call, `received` is `receiver`'s.
    ///
    /// # Errors
    /// [`CollectiveError::Mismatch`] when number, element type or length differ.
    pub fn compare_transfer(
        &self,
        (sender, sent): (usize, &CallDescriptor),
        (receiver, received): (usize, &CallDescriptor),
    ) -> Result<(), CollectiveError> {
        let key = |call: &CallDescriptor| (call.sequence, call.element_type, call.length);
        let sides = sent.operation == Operation::Send && sent.peer == Some(receiver);
        if sides && key(sent) == key(received) {
            return Ok(());
        }
        Err(self.mismatch(receiver, received, sender, sent))
    }

    /// Returns the error of ranks that cannot agree on how to connect.
    pub fn no_agreement(&self, what: String) -> CollectiveError {
        let group = self.to_string();
        CollectiveError::NoAgreement { group, what }
    }

    fn mismatch(
        &self,
        index: usize,
        call: &CallDescriptor,
        other_index: usize,
        other_call: &CallDescriptor,
    ) -> CollectiveError {
        CollectiveError::Mismatch {
            group: self.to_string(),
            rank: self.ranks[index],
            call: self.describe(call),
            other_rank: self.ranks[other_index],
            other_call: self.describe(other_call),
            progress: Box::default(),
        }
    }
}

impl fmt::Display for GroupLabel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.name, self.listed_ranks())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::option;
    use proptest::prelude::*;
    use proptest::sample::select;

    proptest! {
        #[test]
        fn a_descriptor_survives_encoding(
            sequence: u64, length in 0usize..1 << 40, operation in select(Operation::VARIANTS),
            element_type in select(ElementType::VARIANTS),
            other in option::of(0usize..1000), reduce_op in option::of(select(ReduceOp::VARIANTS)),
        ) {
            let (peer, buffer) = if operation.names_buffer() {
                (None, other.map(|number| number as u64))
            } else {
                (other, None)
            };
            let call = CallDescriptor {
                sequence,
                operation,
                element_type,
                length,
                peer,
                reduce_op,
                buffer,
            };
            prop_assert_eq!(CallDescriptor::decode(call.encode()), Some(call));
            prop_assert_eq!(CallDescriptor::from_bytes(&call.to_bytes()), Some(call));
        }

        #[test]
        fn a_descriptor_has_one_encoding(words: [u64; 4], codes in 0_u32..1 << 25) {
            // Peers and lengths of all sizes are descriptors; codes of more than three bytes are not.
            let words = [words[0], MAGIC << 32 | u64::from(codes), words[2], words[3]];
            if let Some(call) = CallDescriptor::decode(words) {
                prop_assert_eq!(call.encode(), words);
            }
            prop_assert_eq!(CallDescriptor::decode([0, MAGIC << 32 | 1 << 24, 0, 0]), None);
        }
    }
}
