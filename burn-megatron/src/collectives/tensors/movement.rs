//! [`Movement`] and [`RegionEntry`]: how tensors move between the ranks of a group.

use burn::tensor::Tensor;

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

/// Way by which the ranks of a tensor-parallel group come by the same input.
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

/// Returns this rank's part of a tensor along a dimension.
pub(super) fn split<const D: usize>(tensor: Tensor<D>, dimension: usize, group: &ProcessGroup) -> Tensor<D> {
    if group.size() == 1 {
        return tensor;
    }
    let length = part_length(tensor.dims()[dimension], dimension, group);
    tensor.narrow(dimension, group.rank() * length, length)
}

/// Returns the parts of all ranks, which are stacked along the first dimension, joined along another.
pub(super) fn join_along<const D: usize>(stacked: Tensor<D>, dimension: usize, group: &ProcessGroup) -> Tensor<D> {
    if group.size() == 1 {
        return stacked;
    }
    let mut shape = stacked.dims();
    let length = shape[0] / group.size();
    if shape.contains(&0) {
        // CUDA has no launch for the parts of nothing.
        shape[0] = length;
        shape[dimension] *= group.size();
        return Tensor::empty(shape, (&stacked.device(), stacked.dtype()));
    }
    let parts = (0..group.size()).map(|part| stacked.clone().narrow(0, part * length, length));
    Tensor::cat(parts.collect(), dimension)
}
