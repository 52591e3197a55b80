//! Ranks' parts of a tensor, one after the other: what a gather leaves, and what a reduce-scatter takes.

use burn_backend::{Shape, TensorMetadata};

use crate::collectives::CollectiveBackend;
use crate::sharded::kind::{Kind, along};
use crate::sharded::placement::{longest_part, part};

/// The ranks' parts of a dimension one after the other along the first, each as long as the longest.
pub(in crate::sharded) fn stacked_parts<B: CollectiveBackend, K: Kind<B>>(
    whole: K::Tensor,
    dimension: usize,
    length: usize,
    size: usize,
) -> K::Tensor {
    if dimension == 0 && length.is_multiple_of(size) {
        return whole;
    }
    let parts = (0..size).map(|rank| {
        let own = along::<B, K>(whole.clone(), dimension, part(length, size, rank));
        padded::<B, K>(own, dimension, longest_part(length, size))
    });
    K::cat(parts.collect(), 0)
}

/// What [`stacked_parts`] was made of.
pub(in crate::sharded) fn unstacked<B: CollectiveBackend, K: Kind<B>>(
    stacked: K::Tensor,
    dimension: usize,
    length: usize,
    size: usize,
) -> K::Tensor {
    if dimension == 0 && length.is_multiple_of(size) {
        return stacked;
    }
    let rows = stacked.shape()[0] / size;
    let parts = (0..size).map(|rank| {
        let block = along::<B, K>(stacked.clone(), 0, rank * rows..(rank + 1) * rows);
        along::<B, K>(block, dimension, 0..part(length, size, rank).len())
    });
    K::cat(parts.collect(), dimension)
}

/// The tensor with zeros after it, so that a dimension has this length.
pub(in crate::sharded) fn padded<B: CollectiveBackend, K: Kind<B>>(
    tensor: K::Tensor,
    dimension: usize,
    length: usize,
) -> K::Tensor {
    let mut shape = tensor.shape();
    if shape[dimension] == length {
        return tensor;
    }
    shape[dimension] = length - shape[dimension];
    let zeros = zeros_like::<B, K>(&tensor, shape);
    K::cat(vec![tensor, zeros], dimension)
}

/// Zeros of the tensor's type, on its device.
pub(in crate::sharded) fn zeros_like<B: CollectiveBackend, K: Kind<B>>(tensor: &K::Tensor, shape: Shape) -> K::Tensor {
    let zero = if tensor.dtype().is_float() {
        0.0f64.into()
    } else {
        0i64.into()
    };
    K::full(shape, zero, &tensor.device(), tensor.dtype())
}
