//! `FlatBuffer`: a bucket's numbers, f32 or f64, in host memory, which the ranks of a node reduce where it lies.
//!
//! Called by the reducer and by gradient finalisation.

use burn::tensor::{DType, TensorData};

use crate::collectives::{CollectiveError, Pending, ProcessGroup, ReduceOp, SharedBuffer};

/// Main gradients: f64 where the parameters are f64, f32 otherwise.
#[derive(Debug)]
pub(super) enum FlatBuffer {
    F32(SharedBuffer<f32>),
    F64(SharedBuffer<f64>),
}

/// A reduction of a flat buffer that is under way.
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

impl FlatBuffer {
    /// Zeros, in the type that the gradients of parameters of `dtype` are kept in, for reductions over `group`.
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
        match (self, gradient.dtype) {
            (FlatBuffer::F32(values), DType::F32) => {
                add(&mut values[offset..], slice::<f32>(gradient), first);
            }
            (FlatBuffer::F64(values), DType::F64) => {
                add(&mut values[offset..], slice::<f64>(gradient), first);
            }
            (FlatBuffer::F32(values), _) => {
                let gradient: Vec<f32> = gradient.iter::<f32>().collect();
                add(&mut values[offset..], &gradient, first);
            }
            (FlatBuffer::F64(_), other) => {
                panic!("a gradient of {other:?} for an f64 parameter")
            }
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
        match self {
            FlatBuffer::F32(values) => values[index] > 0.0,
            FlatBuffer::F64(values) => values[index] > 0.0,
        }
    }

    /// Starts the reduction of the whole buffer over the group that it was allocated for.
    pub(super) fn all_reduce_start(self, op: ReduceOp, group: &ProcessGroup) -> PendingFlat {
        match self {
            FlatBuffer::F32(values) => PendingFlat::F32(group.all_reduce_shared_start(values, op)),
            FlatBuffer::F64(values) => PendingFlat::F64(group.all_reduce_shared_start(values, op)),
        }
    }

    /// Reduces the whole buffer over a group.
    pub(super) fn all_reduce(&mut self, op: ReduceOp, group: &ProcessGroup) -> Result<(), CollectiveError> {
        with_values!(self, values => group.all_reduce(values, op))
    }

    /// Multiplies every element.
    pub(super) fn scale(&mut self, factor: f64) {
        match self {
            FlatBuffer::F32(values) => values.iter_mut().for_each(|v| *v *= factor as f32),
            FlatBuffer::F64(values) => values.iter_mut().for_each(|v| *v *= factor),
        }
    }

    /// The sum of squares of a range, in f64.
    pub(super) fn sum_of_squares(&self, offset: usize, len: usize) -> f64 {
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
        with_values!(self, values => lanes(&values[offset..offset + len]))
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
    /// Waits for the reduced buffer.
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

fn add<T: Copy + std::ops::AddAssign>(sum: &mut [T], gradient: &[T], first: bool) {
    let sum = &mut sum[..gradient.len()];
    match first {
        true => sum.copy_from_slice(gradient),
        false => sum.iter_mut().zip(gradient).for_each(|(s, &g)| *s += g),
    }
}
