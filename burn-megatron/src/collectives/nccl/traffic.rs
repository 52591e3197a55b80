//! [`NcclTraffic`]: what a group has sent over NCCL. `engine` keeps it.

use std::sync::atomic::{AtomicU64, Ordering};

use burn_megatron_comm::collectives::device::GroupLabel;

use crate::collectives::{CallDescriptor, Operation};

/// What a rank has handed to NCCL since its group was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NcclTraffic {
    /// Operations that were queued.
    pub calls: u64,
    /// Payload bytes that this rank has sent for them.
    pub bytes: u64,
}

/// The same, while it grows.
#[derive(Debug, Default)]
pub(super) struct Counted {
    calls: AtomicU64,
    bytes: AtomicU64,
}

impl Counted {
    pub fn so_far(&self) -> NcclTraffic {
        NcclTraffic {
            calls: self.calls.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }

    /// Counts a call of the rank that `label` names.
    pub fn add(&self, call: &CallDescriptor, label: &GroupLabel) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(sent(call, label), Ordering::Relaxed);
    }
}

/// The bytes that a rank sends for a call, as a ring would.
fn sent(call: &CallDescriptor, label: &GroupLabel) -> u64 {
    let size = label.size() as u64;
    let bytes = (call.length * call.element_type.size_bytes()) as u64;
    match call.operation {
        Operation::AllReduce => 2 * bytes * (size - 1) / size,
        Operation::AllGather | Operation::ReduceScatter => bytes * (size - 1),
        // The data pass around the ring from the root to the rank before it, which passes nothing on.
        Operation::Broadcast if call.peer == Some((label.rank + 1) % label.size()) => 0,
        Operation::Broadcast | Operation::Send => bytes,
        Operation::Recv
        | Operation::Barrier
        | Operation::Allocate
        | Operation::AllReduceShared
        | Operation::AllGatherShared
        | Operation::ReduceScatterShared => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectives::ElementType;

    /// What ranks 0, 1, … send for 12 f32 each.
    fn sent_by(ranks: usize, operation: Operation, peer: Option<usize>) -> Vec<u64> {
        let call = CallDescriptor {
            sequence: 0,
            operation,
            element_type: ElementType::F32,
            length: 12,
            peer,
            reduce_op: None,
            buffer: None,
        };
        let label = |rank| GroupLabel {
            name: "test".into(),
            ranks: (0..ranks).collect(),
            rank,
        };
        (0..ranks).map(|rank| sent(&call, &label(rank))).collect()
    }

    #[test]
    fn bytes_that_the_ranks_of_a_ring_send() {
        assert_eq!(sent_by(3, Operation::AllReduce, None), [64; 3]);
        assert_eq!(sent_by(3, Operation::AllGather, None), [96; 3]);
        assert_eq!(sent_by(3, Operation::Broadcast, Some(1)), [0, 48, 48]);
        assert_eq!(sent_by(2, Operation::Send, Some(1))[0], 48);
        assert_eq!(sent_by(2, Operation::Recv, Some(0))[1], 0);
        for operation in [Operation::AllReduce, Operation::AllGather, Operation::ReduceScatter] {
            assert_eq!(sent_by(1, operation, None), [0]);
        }
        assert_eq!(sent_by(1, Operation::Broadcast, Some(0)), [0]);
    }
}
