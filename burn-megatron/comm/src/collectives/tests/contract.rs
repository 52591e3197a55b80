//! What every engine must do: every operation, type, world size and kind of length, against a
//! model in one process, with exact equality and the same bits on all ranks.

use super::model::{Modelled, assert_same_bits, values};
use super::operations::{Arguments, operations};
use super::shared_buffers::every_length as shared_every_length;
use super::*;
use crate::collectives::{CollectiveElement, ReduceOp};
use half::bf16;

/// Returns what a failure is said to be of.
pub(super) fn describe_case<T: CollectiveElement>(group: &ProcessGroup, name: &str, length: usize) -> String {
    let (engine, element, n) = (group.engine_name(), T::ELEMENT_TYPE, group.size());
    format!("{engine} {name} of {length} {element}, {n} ranks")
}

/// Every operation once with buffers of `length`, with every reduction or root.
fn every_operation<T: Modelled>(group: &ProcessGroup, length: usize) {
    let (n, rank) = (group.size(), group.rank());
    let what = |name: &str| describe_case::<T>(group, name, length);
    for operation in operations::<T>() {
        for (op, peer) in operation.varies.over::<T>(n) {
            let salt = op as u64;
            let arguments = Arguments { length, salt, op, peer };
            let what = what(&format!("{} ({op}, {peer})", operation.name));
            let result = (operation.call)(group, arguments);
            assert_same_bits(&result, &(operation.expected)(group, arguments), &what);
        }
    }
    if n > 1 {
        // Around the ring: all send at once, which must not block, whatever the length.
        let (next, previous) = ((rank + 1) % n, (rank + n - 1) % n);
        let sent = group.send_start(values::<T>(rank, length, 9), next);
        let mut received = vec![T::zeroed(); length];
        group.recv(&mut received, previous).unwrap();
        assert_same_bits(&received, &values(previous, length, 9), &what("send, recv"));
        assert_same_bits(&sent.wait().unwrap(), &values(rank, length, 9), &what("sent"));
    }
}

fn lengths<T: CollectiveElement>(n: usize) -> Vec<usize> {
    let chunk = 256 * 1024 / T::ELEMENT_TYPE.size_bytes();
    let mut lengths = vec![0, 1, 3, 257, chunk / 8 + 1];
    // Several chunks, odd; the operations with n shards make it longer still.
    lengths.push(if n == 2 { 3 * chunk + 17 } else { chunk + 5 });
    lengths
}

pub(super) fn every_length<T: Modelled>(group: &ProcessGroup) {
    for length in lengths::<T>(group.size()) {
        every_operation::<T>(group, length);
    }
}

fn every_type(suite: &Suite, n: usize) {
    suite.with_groups(n, TIMEOUT, |_, group| {
        for_each_element!(every_length(&group));
        for_each_element!(shared_every_length(&group));
    });
}

pub(super) fn one_rank_matches_the_model(suite: &Suite) {
    every_type(suite, 1);
}

pub(super) fn two_ranks_match_the_model(suite: &Suite) {
    every_type(suite, 2);
}

pub(super) fn three_ranks_match_the_model(suite: &Suite) {
    every_type(suite, 3);
}

pub(super) fn four_ranks_match_the_model(suite: &Suite) {
    every_type(suite, 4);
}

/// One element gets the same sum wherever it is in a message, however long that is.
pub(super) fn sums_do_not_depend_on_chunk_boundaries(suite: &Suite) {
    let element = |rank: usize| [1.0f32, 1e8, -1e8, 3.0][rank];
    suite.with_groups(4, TIMEOUT, |_, group| {
        let mut alone = [element(group.rank())];
        group.all_reduce(&mut alone, ReduceOp::Sum).unwrap();
        for length in [2048, 2049, 65_536, 65_537, 200_003] {
            let mut buffer = vec![element(group.rank()); length];
            group.all_reduce(&mut buffer, ReduceOp::Sum).unwrap();
            assert!(buffer.iter().all(|x| x.to_bits() == alone[0].to_bits()), "{length}");
        }
    });
}

pub(super) fn a_message_sent_in_parts_gives_the_same_bits(suite: &Suite) {
    suite.with_groups(3, TIMEOUT, |_, group| {
        let whole = values::<bf16>(group.rank(), 300_001, 5);
        let mut at_once = whole.clone();
        group.all_reduce(&mut at_once, ReduceOp::Mean).unwrap();
        let mut in_parts = whole;
        for part in in_parts.chunks_mut(77_777) {
            group.all_reduce(part, ReduceOp::Mean).unwrap();
        }
        assert_same_bits(&in_parts, &at_once, "in parts");
    });
}

pub(super) fn small_sends_do_not_wait_for_their_receiver(suite: &Suite) {
    suite.with_groups(2, TIMEOUT, |_, group| {
        let peer = 1 - group.rank();
        for salt in 0..20 {
            group.send(&values::<i32>(group.rank(), 100, salt), peer).unwrap();
        }
        for salt in 0..20 {
            let mut buffer = [0; 100];
            group.recv(&mut buffer, peer).unwrap();
            assert_same_bits(&buffer, &values(peer, 100, salt), "in order");
        }
    });
}

pub(super) fn a_name_can_be_used_again_and_for_other_ranks(suite: &Suite) {
    suite.run_ranks(4, TIMEOUT, |world| {
        let start = world.rank() / 2 * 2;
        for _ in 0..2 {
            let group = suite.connect(&world, "tensor", &[start, start + 1]).unwrap();
            let mut buffer = [world.rank() as i64];
            group.all_reduce(&mut buffer, ReduceOp::Sum).unwrap();
            assert_eq!(buffer[0], 2 * start as i64 + 1);
        }
    });
}

pub(super) fn payload_bytes_are_counted(suite: &Suite) {
    suite.with_groups(2, TIMEOUT, |_, group| {
        group.barrier().unwrap();
        assert_eq!(group.bytes_communicated(), 0);
        group.all_reduce(&mut [0.0f32; 16], ReduceOp::Sum).unwrap();
        assert_eq!(group.bytes_communicated(), 64);
        group.all_gather(&[0u8; 10], &mut [0; 20]).unwrap();
        assert_eq!(group.bytes_communicated(), 74);
        // Half of it goes out as contribution, half of it comes back reduced.
        group.all_reduce(&mut vec![0u8; 1 << 20], ReduceOp::Sum).unwrap();
        assert_eq!(group.bytes_communicated(), 74 + (1 << 20));
        // Those of shared buffers as those of ordinary calls.
        let mut buffer = group.allocate::<u8>(1 << 20).unwrap();
        let before = group.bytes_communicated();
        group.all_reduce_shared(&mut buffer, ReduceOp::Sum).unwrap();
        assert_eq!(group.bytes_communicated() - before, 1 << 20);
    });
}
