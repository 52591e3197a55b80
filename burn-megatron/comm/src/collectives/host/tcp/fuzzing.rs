//! What must hold whatever comes over a connection between ranks; see [`crate::fuzzing`].

use super::super::super::call::{CallDescriptor, GroupLabel, Operation, ReduceOp};
use super::super::super::element::ElementType;

/// A descriptor has one encoding, and whatever another rank says can be compared and put into words.
pub fn call_descriptor(data: &[u8]) {
    let label = GroupLabel {
        name: "all".into(),
        ranks: [0, 1, 5].into(),
        rank: 0,
    };
    let (blocks, _) = data.as_chunks::<{ CallDescriptor::BYTES }>();
    let mut calls = Vec::new();
    for block in blocks.iter().take(label.size()) {
        let Some(call) = CallDescriptor::from_bytes(block) else {
            continue;
        };
        assert_eq!(&call.to_bytes(), block, "{call:?} has two encodings");
        assert_eq!(CallDescriptor::decode(call.encode()), Some(call));
        assert!(!label.describe(&call).is_empty());
        calls.push(call);
    }
    if let [first, .., last] = &calls[..] {
        assert_eq!(
            label.compare_calls(&calls).is_ok(),
            calls.iter().all(|call| call == first)
        );
        let index = calls.len() - 1;
        if label.compare_transfer((index, last), (0, first)).is_ok() {
            assert_eq!((last.length, last.element_type), (first.length, first.element_type));
            assert_eq!((last.operation, last.peer), (Operation::Send, Some(0)));
        }
    }
}

/// Every operation, in pairs that agree and pairs that do not.
pub fn call_descriptor_seeds() -> Vec<Vec<u8>> {
    let call = |operation, peer, reduce_op| CallDescriptor {
        sequence: 3,
        operation,
        element_type: ElementType::F32,
        length: 64,
        peer,
        reduce_op,
        buffer: None,
    };
    let calls = [
        call(Operation::AllReduce, None, Some(ReduceOp::Sum)),
        call(Operation::AllGather, None, None),
        call(Operation::ReduceScatter, None, Some(ReduceOp::Mean)),
        call(Operation::Broadcast, Some(1), None),
        call(Operation::Recv, Some(1), None),
        call(Operation::Send, Some(0), None),
        CallDescriptor {
            buffer: Some(1),
            ..call(Operation::AllReduceShared, None, Some(ReduceOp::Sum))
        },
        call(Operation::Barrier, None, None),
    ];
    let bytes = calls.map(CallDescriptor::to_bytes);
    let same = bytes.iter().map(|one| [&one[..], one].concat());
    same.chain(bytes.windows(2).map(|pair| pair.concat())).collect()
}
