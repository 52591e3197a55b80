//! Reduction of the contributions of all ranks, in rank order.
//!
//! The engines call [`reduce_in_place`]. The order of the additions is always rank 0 + rank
//! 1 + …, whatever the engine, the length, or the part of the message: so the result of an element
//! depends on the contributions to that element only. f16 and bf16 are added in f32 and rounded
//! once at the end.

use super::super::call::ReduceOp;
use super::super::element::ElementType;
use bytemuck::{Pod, Zeroable, cast_slice, cast_slice_mut};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// Elements that are accumulated at a time: few enough for the accumulators to stay in the first
/// cache.
const BLOCK: usize = 1024;

/// Replaces `own`, the contribution of the rank `rank`, by the reduction of the contributions of
/// all ranks. `contributions` are in rank order and as long as `own`; the entry of `rank` itself is
/// not read.
pub(in crate::collectives) fn reduce_in_place(
    element_type: ElementType,
    op: ReduceOp,
    own: &mut [u8],
    rank: usize,
    contributions: &[&[u8]],
) {
    let reduce = match element_type {
        ElementType::F32 => reduce_elements::<f32>,
        ElementType::F64 => reduce_elements::<f64>,
        ElementType::F16 => reduce_elements::<f16>,
        ElementType::BF16 => reduce_elements::<bf16>,
        ElementType::I32 => reduce_elements::<i32>,
        ElementType::I64 => reduce_elements::<i64>,
        ElementType::U8 => reduce_elements::<u8>,
    };
    reduce(op, own, rank, contributions);
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
            match (contributor, op) {
                (0, _) => T::load(accumulators, block),
                (_, ReduceOp::Sum | ReduceOp::Mean) => T::add_all(accumulators, block),
                (_, ReduceOp::Max) => T::max_all(accumulators, block),
            }
        }
        if op == ReduceOp::Mean {
            T::divide_all(accumulators, contributions.len());
        }
        T::store(accumulators, own_block);
    }
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
