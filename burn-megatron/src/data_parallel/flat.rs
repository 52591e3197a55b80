//! `FlatBuffer`: a bucket's numbers, f32 or f64, in host memory, which the ranks of a node reduce where it lies.
//!
//! Called by the reducer, by gradient finalisation and by the gathering of parameters.

use std::ops::Range;

use burn::tensor::{DType, TensorData};
use half::{bf16, f16};

use crate::collectives::{CollectiveError, Pending, ProcessGroup, ReduceOp, SharedBuffer};

/// Main gradients: f64 where the parameters are f64, f32 otherwise.
#[derive(Debug)]
pub(super) enum FlatBuffer {
    F32(SharedBuffer<f32>),
    F64(SharedBuffer<f64>),
}

/// A collective on a flat buffer that is under way.
pub(super) enum PendingFlat {
    F32(Pending<SharedBuffer<f32>>),
    F64(Pending<SharedBuffer<f64>>),
}

/// Evaluates `$body` with `$values` bound to the buffer inside.
macro_rules! with_values {
    ($buffer:expr, $values:ident => $body:expr) => {
        match $buffer {
            FlatBuffer::F32($values) => $body,
            FlatBuffer::F64($values) => $body,
        }
    };
}

/// Starts a collective on the buffer inside.
macro_rules! start {
    ($buffer:expr, $values:ident => $call:expr) => {
        match $buffer {
            FlatBuffer::F32($values) => PendingFlat::F32($call),
            FlatBuffer::F64($values) => PendingFlat::F64($call),
        }
    };
}

impl FlatBuffer {
    /// Zeros, in the type that the gradients of parameters of `dtype` are kept in, for collectives over `group`.
    /// Collective over it.
    pub(super) fn allocate(len: usize, dtype: DType, group: &ProcessGroup) -> Result<Self, CollectiveError> {
        Ok(match dtype {
            DType::F64 => FlatBuffer::F64(group.allocate(len)?),
            _ => FlatBuffer::F32(group.allocate(len)?),
        })
    }

    /// Zeros in this rank's own memory.
    pub(super) fn zeros(len: usize, dtype: DType) -> Self {
        match dtype {
            DType::F64 => FlatBuffer::F64(SharedBuffer::ungrouped(vec![0.0; len])),
            _ => FlatBuffer::F32(SharedBuffer::ungrouped(vec![0.0; len])),
        }
    }

    /// Adds a gradient to the elements from `offset` on, or writes it there when it is the first.
    pub(super) fn accumulate(&mut self, offset: usize, gradient: &TensorData, first: bool) {
        match self {
            FlatBuffer::F32(values) => {
                let values = &mut values[offset..];
                match gradient.dtype {
                    DType::F32 => add(values, slice::<f32>(gradient), first, |g| g),
                    DType::BF16 => add(values, slice::<bf16>(gradient), first, bf16::to_f32),
                    DType::F16 => add(values, slice::<f16>(gradient), first, f16::to_f32),
                    other => panic!("a gradient of {other:?} for a parameter whose gradients are kept in f32"),
                }
            }
            FlatBuffer::F64(values) => match gradient.dtype {
                DType::F64 => add(&mut values[offset..], slice::<f64>(gradient), first, |g| g),
                other => panic!("a gradient of {other:?} for an f64 parameter"),
            },
        }
    }

    /// Sets `len` elements from `offset` on to zero.
    pub(super) fn clear(&mut self, offset: usize, len: usize) {
        with_values!(self, values => values[offset..offset + len].fill(0.0));
    }

    /// Sets one element.
    pub(super) fn set(&mut self, index: usize, value: f32) {
        match self {
            FlatBuffer::F32(values) => values[index] = value,
            FlatBuffer::F64(values) => values[index] = f64::from(value),
        }
    }

    /// Whether one element is above zero.
    pub(super) fn is_positive(&self, index: usize) -> bool {
        with_values!(self, values => values[index] > 0.0)
    }

    /// Starts the reduction of the whole buffer over the group that it was allocated for.
    pub(super) fn all_reduce_start(self, op: ReduceOp, group: &ProcessGroup) -> PendingFlat {
        start!(self, values => group.all_reduce_shared_start(values, op))
    }

    /// Starts the reduction of this rank's shard over the group that it was allocated for; the other shards stay.
    pub(super) fn reduce_scatter_start(self, op: ReduceOp, group: &ProcessGroup) -> PendingFlat {
        start!(self, values => group.reduce_scatter_shared_start(values, op))
    }

    /// Starts to fetch the shards of the other ranks of the group that it was allocated for.
    pub(super) fn all_gather_start(self, group: &ProcessGroup) -> PendingFlat {
        start!(self, values => group.all_gather_shared_start(values))
    }

    /// Reduces the whole buffer over a group.
    pub(super) fn all_reduce(&mut self, op: ReduceOp, group: &ProcessGroup) -> Result<(), CollectiveError> {
        with_values!(self, values => group.all_reduce(values, op))
    }

    /// Multiplies the elements of a range.
    pub(super) fn scale(&mut self, range: Range<usize>, factor: f64) {
        match self {
            FlatBuffer::F32(values) => values[range].iter_mut().for_each(|v| *v *= factor as f32),
            FlatBuffer::F64(values) => values[range].iter_mut().for_each(|v| *v *= factor),
        }
    }

    /// The sum of squares of a range, in f64.
    pub(super) fn sum_of_squares(&self, range: Range<usize>) -> f64 {
        /// Partial sums, so that the additions need not wait for each other.
        fn lanes<T: Copy + Into<f64>>(values: &[T]) -> f64 {
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
        with_values!(self, values => lanes(&values[range]))
    }

    /// Returns how many elements of a range are zero, and how many are infinite or not a number.
    pub(super) fn count(&self, range: Range<usize>) -> (usize, usize) {
        with_values!(self, values => values[range].iter().fold((0, 0), |(zeros, non_finite), value| {
            (zeros + usize::from(*value == 0.0), non_finite + usize::from(!value.is_finite()))
        }))
    }

    /// Copies `len` elements of another buffer of the same type here.
    pub(super) fn copy_from(&mut self, offset: usize, other: &FlatBuffer, other_offset: usize, len: usize) {
        match (self, other) {
            (FlatBuffer::F32(to), FlatBuffer::F32(from)) => {
                to[offset..offset + len].copy_from_slice(&from[other_offset..other_offset + len])
            }
            (FlatBuffer::F64(to), FlatBuffer::F64(from)) => {
                to[offset..offset + len].copy_from_slice(&from[other_offset..other_offset + len])
            }
            _ => unreachable!("all buckets of a module have one type"),
        }
    }

    /// A range as tensor data of a shape.
    pub(super) fn tensor_data(&self, offset: usize, shape: Vec<usize>) -> TensorData {
        let len: usize = shape.iter().product();
        with_values!(self, values => TensorData::new(values[offset..offset + len].to_vec(), shape))
    }
}

impl PendingFlat {
    /// Waits for the buffer.
    pub(super) fn wait(self) -> Result<FlatBuffer, CollectiveError> {
        match self {
            PendingFlat::F32(pending) => pending.wait().map(FlatBuffer::F32),
            PendingFlat::F64(pending) => pending.wait().map(FlatBuffer::F64),
        }
    }
}

fn slice<T: burn::tensor::Element>(data: &TensorData) -> &[T] {
    data.as_slice().expect("matched on the element type")
}

fn add<T: Copy, S: Copy + std::ops::AddAssign>(sum: &mut [S], gradient: &[T], first: bool, widen: impl Fn(T) -> S) {
    let pairs = sum[..gradient.len()].iter_mut().zip(gradient);
    match first {
        true => pairs.for_each(|(s, &g)| *s = widen(g)),
        false => pairs.for_each(|(s, &g)| *s += widen(g)),
    }
}
