//! What must hold whatever another rank says of its calls; see [`crate::fuzzing`].

use super::call::{CallDescriptor, GroupLabel, Operation, ReduceOp};
use super::process_group::describe;
use strum::VariantArray;

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
    let call = |&operation: &Operation| CallDescriptor {
        sequence: 3,
        // From the first of two ranks to the second, if it is a transfer.
        peer: (!operation.names_buffer()).then_some(usize::from(operation != Operation::Send)),
        reduce_op: Some(ReduceOp::Mean),
        buffer: operation.names_buffer().then_some(1),
        ..describe::<f32>(operation, 64)
    };
    let calls: Vec<_> = Operation::VARIANTS.iter().rev().map(call).collect();
    let bytes: Vec<_> = calls.into_iter().map(CallDescriptor::to_bytes).collect();
    let same = bytes.iter().map(|one| [&one[..], one].concat());
    same.chain(bytes.windows(2).map(|pair| pair.concat())).collect()
}
