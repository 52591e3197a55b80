//! `CollectiveBackend`: the collectives on burn tensors, backend by backend.
//!
//! Called by `mappings` (inside the autodiff graph) and by `data_parallel` and the replica check (outside it).
//! Each backend has an implementation of its own; those whose tensors live in host memory share `staging`.

use burn::tensor::{DType, Shape, ops::FloatTensor};
use cubecl_kernels::KernelBackend;

use super::PendingReceive;
use crate::collectives::{CollectiveError, Pending, ProcessGroup, ReduceOp};

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

/// A backend whose tensors can take part in collectives, and on which the layers' operations run.
///
/// The movements keep the element type. On [`Autodiff`](burn::backend::Autodiff) all but the last are not tracked: their
/// result is a constant. [`move_differentiable`](CollectiveBackend::move_differentiable) is tracked.
pub trait CollectiveBackend: KernelBackend {
    /// Returns the tensor moved over the group.
    ///
    /// # Communication
    /// None for `Keep` and `Split`; one collective otherwise. Groups of one rank never communicate.
    ///
    /// # Errors
    /// As the group's own operations.
    ///
    /// # Panics
    /// When `Split` or `ReduceScatter` is asked of a dimension that the group's size does not divide.
    #[track_caller]
    fn move_data(
        tensor: FloatTensor<Self>,
        movement: Movement,
        group: &ProcessGroup,
    ) -> Result<FloatTensor<Self>, CollectiveError>;

    /// Returns the tensor reduced element by element over the group.
    ///
    /// # Errors
    /// As [`ProcessGroup::all_reduce`].
    #[track_caller]
    fn all_reduce(
        tensor: FloatTensor<Self>,
        op: ReduceOp,
        group: &ProcessGroup,
    ) -> Result<FloatTensor<Self>, CollectiveError>;

    /// Returns the tensor of the rank with index `root` in the group.
    ///
    /// # Errors
    /// As [`ProcessGroup::broadcast`].
    #[track_caller]
    fn broadcast(
        tensor: FloatTensor<Self>,
        root: usize,
        group: &ProcessGroup,
    ) -> Result<FloatTensor<Self>, CollectiveError>;

    /// Starts to send the tensor to the rank with index `to` in the group. Its memory is free once that is done, if
    /// nothing else holds the tensor.
    ///
    /// The other rank must receive with the same number of elements and the same type.
    #[track_caller]
    fn send_start(tensor: FloatTensor<Self>, to: usize, group: &ProcessGroup) -> Pending<()>;

    /// Starts to receive a tensor from the rank with index `from` in the group.
    #[track_caller]
    fn recv_start(
        shape: Shape,
        dtype: DType,
        device: &Self::Device,
        from: usize,
        group: &ProcessGroup,
    ) -> PendingReceive<Self>;

    /// Returns the tensor moved by `forward`; its gradient will be moved by `backward`.
    ///
    /// # Panics
    /// When a collective fails, with the [`CollectiveError`] as payload: neither a layer's forward nor a backward
    /// step can return an error. [`catch_collective_error`](super::catch_collective_error) turns it back into one.
    #[track_caller]
    fn move_differentiable(
        tensor: FloatTensor<Self>,
        forward: Movement,
        backward: Movement,
        group: &ProcessGroup,
    ) -> FloatTensor<Self>;
}
