//! Reduction of the contributions of all ranks, in rank order.
//!
//! The flat engines call [`reduce_in_place`], which has all contributions at hand; a chain of hosts calls
//! [`accumulate`] on each and [`complete`] on the last, with the same steps in the same order. The order of the
//! additions is always rank 0 + rank 1 + …, whatever the engine, the length, or the part of the message: so the result
//! of an element depends on the contributions to that element only. f16 and bf16 are added in f32 and rounded once at
//! the end.

use crate::collectives::call::ReduceOp;
use crate::collectives::element::ElementType;
use bytemuck::{Pod, Zeroable, cast_slice, cast_slice_mut};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// Compiles an expression for every element type, and evaluates the one of `element_type`.
macro_rules! with_element {
    ($element_type:expr, $element:ident => $value:expr) => {
        with_element!(@ $element_type, $element => $value,
            F32 f32, F64 f64, F16 f16, BF16 bf16, I32 i32, I64 i64, U8 u8)
    };
    (@ $element_type:expr, $element:ident => $value:expr, $($variant:ident $native:ty),*) => {
        match $element_type {
            $(ElementType::$variant => {
                type $element = $native;
                $value
            })*
        }
    };
}

/// Elements that are accumulated at a time: few enough for the accumulators to stay in the first
/// cache.
const BLOCK: usize = 1024;

/// Replaces `own`, the contribution of the rank `rank`, by the reduction of the contributions of
/// all ranks. `contributions` are in rank order and as long as `own`; the entry of `rank` itself is
/// not read.
pub fn reduce_in_place(element_type: ElementType, op: ReduceOp, own: &mut [u8], rank: usize, contributions: &[&[u8]]) {
    with_element!(element_type, T => reduce_elements::<T>(op, own, rank, contributions));
}

fn reduce_elements<T: Reducible>(op: ReduceOp, own: &mut [u8], rank: usize, contributions: &[&[u8]]) {
    let own: &mut [T] = cast_slice_mut(own);
    let mut accumulators = [T::Accumulator::zeroed(); BLOCK];
    for (index, own_block) in own.chunks_mut(BLOCK).enumerate() {
        let range = index * BLOCK..index * BLOCK + own_block.len();
        let accumulators = &mut accumulators[..own_block.len()];
        for (contributor, bytes) in contributions.iter().enumerate() {
            let block: &[T] = if contributor == rank {
                own_block
            } else {
                &cast_slice(bytes)[range.clone()]
            };
            T::take_in(accumulators, op, contributor, block);
        }
        T::finish(accumulators, op, contributions.len(), own_block);
    }
}

/// Returns the bytes of the accumulators for `bytes` bytes of elements.
pub(in crate::collectives) fn accumulator_bytes(element_type: ElementType, bytes: usize) -> usize {
    match element_type {
        ElementType::F16 | ElementType::BF16 => 2 * bytes,
        _ => bytes,
    }
}

/// Adds `contributions`, those of the next ranks in rank order, to `accumulators`, which hold the reduction of the
/// first `before` ranks; what they hold is not read when that is none.
pub(in crate::collectives) fn accumulate(
    element_type: ElementType,
    op: ReduceOp,
    accumulators: &mut [u8],
    before: usize,
    contributions: &[&[u8]],
) {
    with_element!(element_type, T => accumulate_elements::<T>(op, accumulators, before, contributions));
}

fn accumulate_elements<T: Reducible>(op: ReduceOp, accumulators: &mut [u8], before: usize, contributions: &[&[u8]]) {
    let accumulators: &mut [T::Accumulator] = cast_slice_mut(accumulators);
    for (index, accumulators) in accumulators.chunks_mut(BLOCK).enumerate() {
        let range = index * BLOCK..index * BLOCK + accumulators.len();
        for (contributor, bytes) in contributions.iter().enumerate() {
            T::take_in(
                accumulators,
                op,
                before + contributor,
                &cast_slice(bytes)[range.clone()],
            );
        }
    }
}

/// Fills `result` with the reduction of all `ranks` ranks, which `accumulators` hold before the last division.
pub(in crate::collectives) fn complete(
    element_type: ElementType,
    op: ReduceOp,
    accumulators: &mut [u8],
    ranks: usize,
    result: &mut [u8],
) {
    with_element!(element_type, T => complete_elements::<T>(op, accumulators, ranks, result));
}

fn complete_elements<T: Reducible>(op: ReduceOp, accumulators: &mut [u8], ranks: usize, result: &mut [u8]) {
    T::finish(cast_slice_mut(accumulators), op, ranks, cast_slice_mut(result));
}

/// An element that can be reduced, a block at a time. The loops are plain, so that the compiler
/// vectorises them.
trait Reducible: Pod {
    /// In which the values are added.
    type Accumulator: Pod;
    fn load(accumulators: &mut [Self::Accumulator], block: &[Self]);
    fn add_all(accumulators: &mut [Self::Accumulator], block: &[Self]);
    fn max_all(accumulators: &mut [Self::Accumulator], block: &[Self]);
    fn divide_all(accumulators: &mut [Self::Accumulator], divisor: usize);
    fn store(accumulators: &[Self::Accumulator], block: &mut [Self]);

    /// Adds the contribution of one more rank; the first one's replaces what the accumulators hold.
    fn take_in(accumulators: &mut [Self::Accumulator], op: ReduceOp, contributor: usize, block: &[Self]) {
        match (contributor, op) {
            (0, _) => Self::load(accumulators, block),
            (_, ReduceOp::Sum | ReduceOp::Mean) => Self::add_all(accumulators, block),
            (_, ReduceOp::Max) => Self::max_all(accumulators, block),
        }
    }

    /// Stores the result when the contributions of all `ranks` ranks are in.
    fn finish(accumulators: &mut [Self::Accumulator], op: ReduceOp, ranks: usize, block: &mut [Self]) {
        if op == ReduceOp::Mean {
            Self::divide_all(accumulators, ranks);
        }
        Self::store(accumulators, block);
    }
}

/// The larger of two floats; NaN when one of them is, so that a NaN on one rank is seen on all.
macro_rules! float_max {
    ($accumulator:expr, $value:expr) => {
        if $value > $accumulator || $value.is_nan() {
            $value
        } else {
            $accumulator
        }
    };
}

macro_rules! native {
    ($($element:ident: |$a:ident, $b:ident| $add:expr, $max:expr, |$sum:ident, $n:ident| $divide:expr;)*) => {$(
        impl Reducible for $element {
            type Accumulator = $element;

            fn load(accumulators: &mut [$element], block: &[$element]) {
                accumulators.copy_from_slice(block);
            }

            fn add_all(accumulators: &mut [$element], block: &[$element]) {
                for (accumulator, value) in accumulators.iter_mut().zip(block) {
                    let ($a, $b) = (*accumulator, *value);
                    *accumulator = $add;
                }
            }

            fn max_all(accumulators: &mut [$element], block: &[$element]) {
                for (accumulator, value) in accumulators.iter_mut().zip(block) {
                    let ($a, $b) = (*accumulator, *value);
                    *accumulator = $max;
                }
            }

            fn divide_all(accumulators: &mut [$element], divisor: usize) {
                let $n = divisor as $element;
                for $sum in accumulators {
                    *$sum = $divide;
                }
            }

            fn store(accumulators: &[$element], block: &mut [$element]) {
                block.copy_from_slice(accumulators);
            }
        }
    )*};
}

native! {
    f32: |a, b| a + b, float_max!(a, b), |sum, n| *sum / n;
    f64: |a, b| a + b, float_max!(a, b), |sum, n| *sum / n;
    // Integers wrap; the group refuses their mean.
    i32: |a, b| a.wrapping_add(b), a.max(b), |sum, n| *sum / n;
    i64: |a, b| a.wrapping_add(b), a.max(b), |sum, n| *sum / n;
    u8: |a, b| a.wrapping_add(b), a.max(b), |sum, n| *sum / n;
}

macro_rules! halves {
    ($($element:ident),*) => {$(
        impl Reducible for $element {
            type Accumulator = f32;

            fn load(accumulators: &mut [f32], block: &[$element]) {
                block.convert_to_f32_slice(accumulators);
            }

            fn add_all(accumulators: &mut [f32], block: &[$element]) {
                let mut values = [0.0; BLOCK];
                block.convert_to_f32_slice(&mut values[..block.len()]);
                f32::add_all(accumulators, &values[..block.len()]);
            }

            fn max_all(accumulators: &mut [f32], block: &[$element]) {
                let mut values = [0.0; BLOCK];
                block.convert_to_f32_slice(&mut values[..block.len()]);
                f32::max_all(accumulators, &values[..block.len()]);
            }

            fn divide_all(accumulators: &mut [f32], divisor: usize) {
                f32::divide_all(accumulators, divisor);
            }

            fn store(accumulators: &[f32], block: &mut [$element]) {
                block.convert_from_f32_slice(accumulators);
            }
        }
    )*};
}

halves!(f16, bf16);

#[cfg(test)]
mod tests {
    use super::*;

    fn reduce<T: Pod>(element_type: ElementType, op: ReduceOp, all: &[Vec<T>], rank: usize) -> Vec<T> {
        let mut own = all[rank].clone();
        let contributions: Vec<&[u8]> = all.iter().map(|values| cast_slice(values)).collect();
        reduce_in_place(element_type, op, cast_slice_mut(&mut own), rank, &contributions);
        own
    }

    #[test]
    fn the_order_of_additions_is_the_rank_order_on_every_rank() {
        // (1 + 1e8) - 1e8 is 0 in f32, 1 + (1e8 - 1e8) is 1.
        let all = [vec![1.0f32; 3000], vec![1e8; 3000], vec![-1e8; 3000]];
        for rank in 0..3 {
            let result = reduce(ElementType::F32, ReduceOp::Sum, &all, rank);
            assert_eq!(result, vec![0.0; 3000]);
        }
    }

    #[test]
    fn halves_round_once() {
        // Each addition of 2^-9 to 1 alone is lost in bf16; both together are not.
        let small = bf16::from_f32(1.0 / 256.0);
        let all = [vec![bf16::ONE], vec![small], vec![small]];
        let result = reduce(ElementType::BF16, ReduceOp::Sum, &all, 1);
        assert_eq!(result, vec![bf16::from_f32(1.0 + 2.0 / 256.0)]);
    }

    /// Wherever the ranks are divided between two hosts.
    #[test]
    fn a_chain_gives_the_bits_of_a_reduction_at_once() {
        let value = |rank: usize, index: usize| ((rank * 7919 + index * 104_729) % 2003) as f32 * 0.37 - 300.0;
        let all: Vec<Vec<bf16>> = (0..4)
            .map(|rank| (0..2500).map(|index| bf16::from_f32(value(rank, index))).collect())
            .collect();
        let contributions: Vec<&[u8]> = all.iter().map(|values| cast_slice(values)).collect();
        for op in [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Max] {
            let expected = reduce(ElementType::BF16, op, &all, 0);
            for cut in 1..4 {
                let bytes = accumulator_bytes(ElementType::BF16, 5000);
                let mut words = vec![u64::MAX; bytes / 8];
                let accumulators: &mut [u8] = cast_slice_mut(&mut words);
                accumulate(ElementType::BF16, op, accumulators, 0, &contributions[..cut]);
                accumulate(ElementType::BF16, op, accumulators, cut, &contributions[cut..]);
                let mut result = vec![bf16::ZERO; 2500];
                complete(ElementType::BF16, op, accumulators, 4, cast_slice_mut(&mut result));
                assert_eq!(result, expected);
            }
        }
    }

    #[test]
    fn a_nan_on_any_rank_is_the_maximum() {
        for nan_rank in 0..3 {
            let mut all = [vec![1.0f32, 5.0], vec![2.0, -3.0], vec![-7.0, 4.0]];
            all[nan_rank][0] = f32::NAN;
            let result = reduce(ElementType::F32, ReduceOp::Max, &all, 2);
            assert!(result[0].is_nan());
            assert_eq!(result[1], 5.0);
        }
    }
}
