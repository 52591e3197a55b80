//! A model of the operations in one process, written as plainly as possible.

use crate::collectives::tests::scramble;
use crate::collectives::{CollectiveElement, ReduceOp};
use half::{bf16, f16};

/// An element with a model of its reduction.
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
