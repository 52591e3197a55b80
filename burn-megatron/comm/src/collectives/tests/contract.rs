//! What every engine must do: every operation, type, world size and kind of length, against a
//! model in one process, with exact equality and the same bits on all ranks.

use super::*;
use crate::collectives::{CollectiveElement, ReduceOp};
use half::{bf16, f16};

/// An element with a model of its reduction, written as plainly as possible.
pub(super) trait Modelled: CollectiveElement + PartialEq + std::fmt::Debug {
    const OPS: &'static [ReduceOp];
    fn from_bits(bits: u64) -> Self;
    fn reduce(values: impl Iterator<Item = Self>, op: ReduceOp) -> Self;
}

macro_rules! model_float {
    ($($element:ty, $accumulator:ty, $widen:expr, $narrow:expr;)*) => {$(
        impl Modelled for $element {
            const OPS: &'static [ReduceOp] = &[ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Max];

            fn from_bits(bits: u64) -> Self {
                let scale = [1.0, 1e-3, 300.0][(bits % 3) as usize];
                let value = ((bits >> 11) as f64 / (1u64 << 53) as f64 - 0.5) * scale;
                ($narrow)(value as $accumulator)
            }

            fn reduce(values: impl Iterator<Item = Self>, op: ReduceOp) -> Self {
                let values: Vec<$accumulator> = values.map($widen).collect();
                let mut result = values[0];
                for value in &values[1..] {
                    result = match op {
                        ReduceOp::Max => result.max(*value),
                        _ => result + value,
                    };
                }
                if op == ReduceOp::Mean {
                    result /= values.len() as $accumulator;
                }
                ($narrow)(result)
            }
        }
    )*};
}

model_float! {
    f32, f32, |x| x, |x| x;
    f64, f64, |x| x, |x| x;
    f16, f32, f16::to_f32, f16::from_f32;
    bf16, f32, bf16::to_f32, bf16::from_f32;
}

macro_rules! model_integer {
    ($($element:ty),*) => {$(
        impl Modelled for $element {
            const OPS: &'static [ReduceOp] = &[ReduceOp::Sum, ReduceOp::Max];

            fn from_bits(bits: u64) -> Self {
                bits as $element
            }

            fn reduce(values: impl Iterator<Item = Self>, op: ReduceOp) -> Self {
                match op {
                    ReduceOp::Max => values.max().unwrap(),
                    _ => values.fold(0, |sum, value| sum.wrapping_add(value)),
                }
            }
        }
    )*};
}

model_integer!(i32, i64, u8);

/// The values repeat after this number of elements, which keeps the model fast. It is prime: no chunk, slice or shard
/// is a multiple of it, so an element in the wrong place shows.
const PERIOD: usize = 1021;

fn repeat<T: Modelled>(period: &[T], length: usize) -> Vec<T> {
    let mut values = period.repeat(length.div_ceil(PERIOD));
    values.truncate(length);
    values
}

/// Returns the first values of what the rank brings, at most a period.
fn period<T: Modelled>(rank: usize, length: usize, salt: u64) -> Vec<T> {
    let seed = scramble(salt).wrapping_add((rank as u64) << 40);
    (0..length.min(PERIOD) as u64)
        .map(|index| T::from_bits(scramble(seed.wrapping_add(index))))
        .collect()
}

/// Returns what the rank brings to an operation.
pub(super) fn values<T: Modelled>(rank: usize, length: usize, salt: u64) -> Vec<T> {
    repeat(&period(rank, length, salt), length)
}

/// Returns the reduction over `n` ranks of what they bring.
pub(super) fn reduced<T: Modelled>(n: usize, length: usize, salt: u64, op: ReduceOp) -> Vec<T> {
    let all: Vec<Vec<T>> = (0..n).map(|rank| period(rank, length, salt)).collect();
    let period: Vec<T> = (0..length.min(PERIOD))
        .map(|index| T::reduce(all.iter().map(|values| values[index]), op))
        .collect();
    repeat(&period, length)
}

/// Compares bits: -0 is not 0, and the same NaN is the same.
pub(super) fn assert_same_bits<T: Modelled>(result: &[T], expected: &[T], what: &str) {
    assert_eq!(result.len(), expected.len(), "{what}");
    let bytes = bytemuck::cast_slice::<T, u8>;
    if bytes(result) == bytes(expected) {
        return;
    }
    let differs = |&index: &usize| bytes(&result[index..=index]) != bytes(&expected[index..=index]);
    if let Some(index) = (0..result.len()).find(differs) {
        let (result, expected) = (result[index], expected[index]);
        panic!("{what}: element {index} is {result:?}, expected {expected:?}");
    }
}

/// Every operation once with buffers of `length`.
pub(super) fn every_operation<T: Modelled>(group: &ProcessGroup, length: usize) {
    let (n, rank) = (group.size(), group.rank());
    let engine = group.engine_name();
    let what = |name: &str| format!("{engine} {name} of {length} {}, {n} ranks", T::ELEMENT_TYPE);
    for &op in T::OPS {
        let salt = op as u64;
        let mut buffer = values::<T>(rank, length, salt);
        group.all_reduce(&mut buffer, op).unwrap();
        let expected = reduced(n, length, salt, op);
        assert_same_bits(&buffer, &expected, &what(&format!("all_reduce {op}")));

        let input = values::<T>(rank, length * n, salt);
        let mut shard = vec![T::zeroed(); length];
        group.reduce_scatter(&input, &mut shard, op).unwrap();
        let expected = &reduced(n, length * n, salt, op)[rank * length..(rank + 1) * length];
        assert_same_bits(&shard, expected, &what(&format!("reduce_scatter {op}")));
    }
    let mut output = vec![T::zeroed(); length * n];
    group.all_gather(&values::<T>(rank, length, 7), &mut output).unwrap();
    let expected: Vec<T> = (0..n).flat_map(|rank| values(rank, length, 7)).collect();
    assert_same_bits(&output, &expected, &what("all_gather"));
    for root in 0..n {
        let mut buffer = values::<T>(rank, length, 8);
        group.broadcast(&mut buffer, root).unwrap();
        assert_same_bits(&buffer, &values(root, length, 8), &what("broadcast"));
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
    group.barrier().unwrap();
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
            let group = suite.connect(&world, "tensor", &[start, start + 1]);
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
    });
}
