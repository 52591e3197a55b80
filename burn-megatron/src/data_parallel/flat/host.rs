//! `HostBuffer`: a bucket's numbers, f32 or f64, in host memory, which the ranks of a node reduce in place.

use std::ops::Range;

use burn::tensor::{DType, Element, TensorData};
use half::{bf16, f16};
use rayon::prelude::*;

use super::BucketRange;
use crate::collectives::{CollectiveError, Pending, ProcessGroup, ReduceOp, SharedBuffer};

/// Elements that one thread goes through at a time; sums are over parts of this many, whatever the number of threads.
const PART: usize = 1 << 16;

/// Main gradients: f64 where the parameters are f64, f32 otherwise.
#[derive(Debug)]
pub(in crate::data_parallel) enum HostBuffer {
    F32(SharedBuffer<f32>),
    F64(SharedBuffer<f64>),
}

/// A collective on a flat buffer that is under way.
pub(in crate::data_parallel) enum PendingHost {
    F32(Pending<SharedBuffer<f32>>),
    F64(Pending<SharedBuffer<f64>>),
}

/// Evaluates `$body` with `$values` bound to the buffer inside.
macro_rules! with_values {
    ($buffer:expr, $values:ident => $body:expr) => {
        match $buffer {
            HostBuffer::F32($values) => $body,
            HostBuffer::F64($values) => $body,
        }
    };
}

/// Starts a collective on the buffer inside.
macro_rules! start {
    ($buffer:expr, $values:ident => $call:expr) => {
        match $buffer {
            HostBuffer::F32($values) => PendingHost::F32($call),
            HostBuffer::F64($values) => PendingHost::F64($call),
        }
    };
}

impl HostBuffer {
    /// Zeros, in the type that the gradients of parameters of `dtype` are kept in, for collectives over `group`.
    /// Collective over it.
    pub fn allocate(len: usize, dtype: DType, group: &ProcessGroup) -> Result<Self, CollectiveError> {
        Ok(match dtype {
            DType::F64 => HostBuffer::F64(group.allocate(len)?),
            _ => HostBuffer::F32(group.allocate(len)?),
        })
    }

    /// Zeros in this rank's own memory.
    pub fn zeros(len: usize, dtype: DType) -> Self {
        match dtype {
            DType::F64 => HostBuffer::F64(SharedBuffer::ungrouped(vec![0.0; len])),
            _ => HostBuffer::F32(SharedBuffer::ungrouped(vec![0.0; len])),
        }
    }

    /// Adds a gradient to the elements from `offset` on, or writes it there when it is the first.
    pub fn accumulate(&mut self, offset: usize, gradient: &TensorData, first: bool) {
        match self {
            HostBuffer::F32(values) => {
                let values = &mut values[offset..];
                match gradient.dtype {
                    DType::F32 => add(values, slice::<f32>(gradient), first, |g| g),
                    DType::BF16 => add(values, slice::<bf16>(gradient), first, bf16::to_f32),
                    DType::F16 => add(values, slice::<f16>(gradient), first, f16::to_f32),
                    other => panic!("a gradient of {other:?} for a parameter whose gradients are kept in f32"),
                }
            }
            HostBuffer::F64(values) => match gradient.dtype {
                DType::F64 => add(&mut values[offset..], slice::<f64>(gradient), first, |g| g),
                other => panic!("a gradient of {other:?} for an f64 parameter"),
            },
        }
    }

    /// Sets `len` elements from `offset` on to zero.
    pub fn clear(&mut self, offset: usize, len: usize) {
        with_values!(self, values => values[offset..offset + len].fill(0.0));
    }

    /// Sets one element.
    fn set(&mut self, index: usize, value: f32) {
        match self {
            HostBuffer::F32(values) => values[index] = value,
            HostBuffer::F64(values) => values[index] = f64::from(value),
        }
    }

    /// Whether one element is above zero.
    fn is_positive(&self, index: usize) -> bool {
        with_values!(self, values => values[index] > 0.0)
    }

    /// Starts the reduction of the whole buffer over the group that it was allocated for.
    pub fn all_reduce_start(self, op: ReduceOp, group: &ProcessGroup) -> PendingHost {
        start!(self, values => group.all_reduce_shared_start(values, op))
    }

    /// Starts the reduction of this rank's shard over the group that it was allocated for; the other shards stay.
    pub fn reduce_scatter_start(self, op: ReduceOp, group: &ProcessGroup) -> PendingHost {
        start!(self, values => group.reduce_scatter_shared_start(values, op))
    }

    /// Starts to fetch the shards of the other ranks of the group that it was allocated for.
    pub fn all_gather_start(self, group: &ProcessGroup) -> PendingHost {
        start!(self, values => group.all_gather_shared_start(values))
    }

    /// Reduces the whole buffer over a group.
    fn all_reduce(&mut self, op: ReduceOp, group: &ProcessGroup) -> Result<(), CollectiveError> {
        with_values!(self, values => group.all_reduce(values, op))
    }

    /// Multiplies the elements of a range.
    pub fn scale(&mut self, range: Range<usize>, factor: f64) {
        match self {
            HostBuffer::F32(values) => scale(&mut values[range], factor as f32),
            HostBuffer::F64(values) => scale(&mut values[range], factor),
        }
    }

    /// Moves the elements of a range into `-threshold..=threshold`; what is not a number stays.
    pub fn clamp(&mut self, range: Range<usize>, threshold: f32) {
        match self {
            HostBuffer::F32(values) => clamp(&mut values[range], [-threshold, threshold]),
            HostBuffer::F64(values) => clamp(&mut values[range], [-threshold, threshold].map(f64::from)),
        }
    }

    /// The sum of squares of a range, in f64; it does not depend on the number of threads.
    pub fn sum_of_squares(&self, range: Range<usize>) -> f64 {
        with_values!(self, values => {
            let parts: Vec<f64> = values[range].par_chunks(PART).map(sum_of_squares).collect();
            parts.iter().sum()
        })
    }

    /// Returns how many elements of a range are zero, and how many are infinite or not a number.
    pub fn count(&self, range: Range<usize>) -> (usize, usize) {
        with_values!(self, values => count(&values[range]))
    }

    /// Copies `len` elements of another buffer of the same type here.
    fn copy_from(&mut self, offset: usize, other: &HostBuffer, other_offset: usize, len: usize) {
        match (self, other) {
            (HostBuffer::F32(to), HostBuffer::F32(from)) => {
                to[offset..offset + len].copy_from_slice(&from[other_offset..other_offset + len])
            }
            (HostBuffer::F64(to), HostBuffer::F64(from)) => {
                to[offset..offset + len].copy_from_slice(&from[other_offset..other_offset + len])
            }
            _ => unreachable!("all buckets of a module have one type"),
        }
    }

    /// A range as tensor data, `[len]`.
    pub fn tensor_data(&self, range: Range<usize>) -> TensorData {
        let shape = [range.len()];
        with_values!(self, values => TensorData::new(values[range].to_vec(), shape))
    }
}

impl PendingHost {
    /// Waits for the buffer.
    pub fn wait(self) -> Result<HostBuffer, CollectiveError> {
        match self {
            PendingHost::F32(pending) => pending.wait().map(HostBuffer::F32),
            PendingHost::F64(pending) => pending.wait().map(HostBuffer::F64),
        }
    }
}

/// Sums ranges of buffers over a group, all in one call; and whether each is there on some rank of it.
pub(super) fn sum_over(
    buffers: &mut [&mut HostBuffer],
    ranges: &[BucketRange],
    is_there: &[bool],
    dtype: DType,
    group: &ProcessGroup,
) -> Result<Vec<bool>, CollectiveError> {
    // Each part, and whether it is there.
    let length = ranges.iter().map(|part| part.range.len() + 1).sum();
    let mut together = HostBuffer::zeros(length, dtype);
    let mut to = 0;
    for (BucketRange { bucket, range }, &is_there) in ranges.iter().zip(is_there) {
        together.copy_from(to, buffers[*bucket], range.start, range.len());
        together.set(to + range.len(), f32::from(u8::from(is_there)));
        to += range.len() + 1;
    }
    together.all_reduce(ReduceOp::Sum, group)?;
    let mut from = 0;
    let mut is_somewhere = Vec::with_capacity(ranges.len());
    for BucketRange { bucket, range } in ranges {
        buffers[*bucket].copy_from(range.start, &together, from, range.len());
        is_somewhere.push(together.is_positive(from + range.len()));
        from += range.len() + 1;
    }
    Ok(is_somewhere)
}

/// Whether every element is finite: no exponent is all ones.
pub(super) fn is_finite(gradient: &TensorData) -> bool {
    /// The largest magnitude as bits, of which a comparison is one instruction for many elements.
    fn largest<T: Element, U: Copy + Default + Ord>(gradient: &TensorData, magnitude: impl Fn(T) -> U) -> U {
        slice::<T>(gradient)
            .iter()
            .fold(U::default(), |max, &value| max.max(magnitude(value)))
    }
    match gradient.dtype {
        DType::F64 => largest(gradient, |v: f64| v.to_bits() & (u64::MAX >> 1)) < f64::INFINITY.to_bits(),
        DType::F32 => largest(gradient, |v: f32| v.to_bits() & (u32::MAX >> 1)) < f32::INFINITY.to_bits(),
        DType::F16 => largest(gradient, |v: f16| v.to_bits() & (u16::MAX >> 1)) < f16::INFINITY.to_bits(),
        DType::BF16 => largest(gradient, |v: bf16| v.to_bits() & (u16::MAX >> 1)) < bf16::INFINITY.to_bits(),
        _ => true,
    }
}

/// Returns how many elements of a range are zero, and how many are infinite or not a number.
pub(super) fn count_data(data: &TensorData, range: Range<usize>) -> (usize, usize) {
    match data.dtype {
        DType::F64 => count(&slice::<f64>(data)[range]),
        _ => count(&slice::<f32>(data)[range]),
    }
}

fn count<T: Copy + Sync + Into<f64>>(values: &[T]) -> (usize, usize) {
    let parts = values.par_chunks(PART).map(|part| {
        part.iter().fold((0, 0), |(zeros, non_finite), &value| {
            let value: f64 = value.into();
            (
                zeros + usize::from(value == 0.0),
                non_finite + usize::from(!value.is_finite()),
            )
        })
    });
    parts.reduce(|| (0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
}

fn slice<T: Element>(data: &TensorData) -> &[T] {
    data.as_slice().expect("matched on the element type")
}

fn add<T, S>(sum: &mut [S], gradient: &[T], first: bool, widen: impl Fn(T) -> S + Sync)
where
    T: Copy + Sync,
    S: Copy + Send + std::ops::AddAssign,
{
    let parts = sum[..gradient.len()]
        .par_chunks_mut(PART)
        .zip(gradient.par_chunks(PART));
    parts.for_each(|(sum, gradient)| {
        let pairs = sum.iter_mut().zip(gradient);
        if first {
            pairs.for_each(|(s, &g)| *s = widen(g))
        } else {
            pairs.for_each(|(s, &g)| *s += widen(g))
        }
    });
}

fn scale<T: Copy + Send + Sync + std::ops::MulAssign>(values: &mut [T], factor: T) {
    let parts = values.par_chunks_mut(PART);
    parts.for_each(|part| part.iter_mut().for_each(|value| *value *= factor));
}

fn clamp<T: Copy + Send + Sync + PartialOrd>(values: &mut [T], [low, high]: [T; 2]) {
    let clamped = |value: T| match value {
        value if value < low => low,
        value if value > high => high,
        value => value,
    };
    let parts = values.par_chunks_mut(PART);
    parts.for_each(|part| part.iter_mut().for_each(|value| *value = clamped(*value)));
}

/// In lanes, so that the additions need not wait for each other.
fn sum_of_squares<T: Copy + Into<f64>>(values: &[T]) -> f64 {
    let mut sums = [0.0f64; 8];
    let chunks = values.chunks_exact(8);
    let rest: f64 = chunks.remainder().iter().map(|&v| v.into().powi(2)).sum();
    for chunk in chunks {
        for (sum, &value) in sums.iter_mut().zip(chunk) {
            let value: f64 = value.into();
            *sum += value * value;
        }
    }
    sums.iter().sum::<f64>() + rest
}
