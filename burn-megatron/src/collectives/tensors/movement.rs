//! [`Movement`] and [`RegionEntry`]: how tensors move between the ranks of a group.

use burn::tensor::{Slice, TensorMetadata, backend::Backend, ops::FloatTensor};

use super::RowChunks;
use super::call::part_length;
use crate::collectives::ProcessGroup;

/// A movement of a tensor's data between the ranks of a group. Dimension counts from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Movement {
    /// The tensor stays as it is.
    Keep,
    /// Each rank receives the sum over all ranks.
    AllReduce,
    /// Each rank keeps its own of `size` equal parts along a dimension.
    Split {
        /// The dimension that is cut.
        dimension: usize,
    },
    /// Each rank receives the parts of all ranks, joined along a dimension.
    AllGather {
        /// The dimension that grows.
        dimension: usize,
    },
    /// Each rank receives its own of `size` equal parts, along dimension 0, of the sum over all ranks.
    ReduceScatter,
}

/// How the ranks of a tensor-parallel group come by the same input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionEntry {
    /// Every rank has it; its gradient is all-reduced.
    Copy,
    /// Each has its own rows, which are gathered; its gradient is reduce-scattered.
    GatherRows {
        /// How they are gathered on the way in: in several chunks, each is multiplied while the next is gathered. The
        /// backward pass has a matmul to overlap each of its collectives with, so nothing is chunked there.
        chunks: RowChunks,
    },
}

impl RegionEntry {
    /// The movement of the input.
    pub(super) fn movement(self) -> Movement {
        match self {
            RegionEntry::Copy => Movement::Keep,
            RegionEntry::GatherRows { .. } => Movement::AllGather { dimension: 0 },
        }
    }
}

/// This rank's part of a tensor along a dimension.
pub(super) fn split<B: Backend>(tensor: FloatTensor<B>, dimension: usize, group: &ProcessGroup) -> FloatTensor<B> {
    if group.size() == 1 {
        return tensor;
    }
    let length = part_length(tensor.shape()[dimension], dimension, group);
    slice_along::<B>(tensor, dimension, group.rank(), length)
}

/// Returns the parts of all ranks, which are stacked along the first dimension, joined along another.
pub(super) fn join_along<B: Backend>(
    stacked: FloatTensor<B>,
    dimension: usize,
    group: &ProcessGroup,
) -> FloatTensor<B> {
    if group.size() == 1 {
        return stacked;
    }
    let shape = stacked.shape();
    let length = shape[0] / group.size();
    if shape.num_elements() == 0 {
        // CUDA has no launch for the parts of nothing.
        let mut joined = shape;
        joined[0] = length;
        joined[dimension] *= group.size();
        return B::float_empty(joined, &B::float_device(&stacked), stacked.dtype().into());
    }
    let parts = (0..group.size()).map(|part| slice_along::<B>(stacked.clone(), 0, part, length));
    B::float_cat(parts.collect(), dimension)
}

/// One of the parts of a length that a tensor has along a dimension.
fn slice_along<B: Backend>(tensor: FloatTensor<B>, dimension: usize, part: usize, length: usize) -> FloatTensor<B> {
    let shape = tensor.shape();
    let mut slices: Vec<Slice> = (0..shape.num_dims()).map(|d| (0..shape[d]).into()).collect();
    slices[dimension] = (part * length..(part + 1) * length).into();
    B::float_slice(tensor, &slices)
}
