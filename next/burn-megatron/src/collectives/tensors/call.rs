//! [`TensorCall`]: the collectives on tensors.

use burn_backend::Shape;

use crate::collectives::{ProcessGroup, ReduceOp};

/// A collective that makes a tensor of the tensors of all ranks of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorCall {
    /// Each rank gets the reduction, element by element.
    AllReduce(ReduceOp),
    /// Each rank gets its own of `size` equal parts, along dimension 0, of the reduction.
    ReduceScatter(ReduceOp),
    /// Each rank gets the tensors of all ranks, in their order, joined along dimension 0.
    AllGather,
    /// Each rank gets the tensor of one.
    Broadcast {
        /// Its index in the group.
        root: usize,
    },
}

/// Whether a collective is made on the caller's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallMode {
    /// The caller waits for the result at once: the call may be made on its thread and change the tensor in place.
    Blocking,
    /// The caller continues meanwhile.
    Started,
}

impl TensorCall {
    /// Returns the shape of the result.
    ///
    /// # Panics
    /// When the group's size does not divide the dimension that is cut.
    pub(super) fn result_shape(self, mut shape: Shape, group: &ProcessGroup) -> Shape {
        match self {
            TensorCall::AllReduce(_) | TensorCall::Broadcast { .. } => {}
            TensorCall::ReduceScatter(_) => shape[0] = part_length(shape[0], 0, group),
            TensorCall::AllGather => shape[0] *= group.size(),
        }
        shape
    }
}

/// The length of each rank's part of a dimension.
pub(super) fn part_length(length: usize, dimension: usize, group: &ProcessGroup) -> usize {
    assert!(
        length.is_multiple_of(group.size()),
        "dimension {dimension} of length {length} does not split over the {} ranks of group {}",
        group.size(),
        group.name()
    );
    length / group.size()
}
