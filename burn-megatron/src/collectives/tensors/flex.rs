//! `CollectiveBackend` for burn's CPU backend, whose tensors are in host memory.

use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Shape};
use burn_flex::Flex;

use super::{CollectiveBackend, Movement, PendingReceive, staging, unwrap_or_unwind};
use crate::collectives::{CollectiveError, Pending, ProcessGroup, ReduceOp};

impl CollectiveBackend for Flex {
    #[track_caller]
    fn move_data(
        tensor: FloatTensor<Self>,
        movement: Movement,
        group: &ProcessGroup,
    ) -> Result<FloatTensor<Self>, CollectiveError> {
        staging::move_data::<Self>(tensor, movement, group)
    }

    #[track_caller]
    fn all_reduce(
        tensor: FloatTensor<Self>,
        op: ReduceOp,
        group: &ProcessGroup,
    ) -> Result<FloatTensor<Self>, CollectiveError> {
        staging::all_reduce::<Self>(tensor, op, group)
    }

    #[track_caller]
    fn broadcast(
        tensor: FloatTensor<Self>,
        root: usize,
        group: &ProcessGroup,
    ) -> Result<FloatTensor<Self>, CollectiveError> {
        staging::broadcast::<Self>(tensor, root, group)
    }

    #[track_caller]
    fn send_start(tensor: FloatTensor<Self>, to: usize, group: &ProcessGroup) -> Pending<()> {
        staging::send_start::<Self>(tensor, to, group)
    }

    #[track_caller]
    fn recv_start(
        shape: Shape,
        dtype: DType,
        device: &Self::Device,
        from: usize,
        group: &ProcessGroup,
    ) -> PendingReceive<Self> {
        staging::recv_start::<Self>(shape, dtype, device, from, group)
    }

    #[track_caller]
    fn move_differentiable(
        tensor: FloatTensor<Self>,
        forward: Movement,
        _backward: Movement,
        group: &ProcessGroup,
    ) -> FloatTensor<Self> {
        unwrap_or_unwind(Self::move_data(tensor, forward, group))
    }
}
