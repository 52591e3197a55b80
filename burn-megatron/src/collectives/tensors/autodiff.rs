//! `CollectiveBackend` for `Autodiff`, which records the gradient's own movement.
//!
//! burn's own `all_reduce` for `Autodiff` reduces the gradient again in the backward pass, which is wrong for a
//! region whose gradient is the same on every rank; here the caller states both movements.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind, unary};
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Shape, Tensor};
use cubecl_kernels::linear::LinearInputs;

use super::{
    CallMode, CollectiveBackend, Movement, PendingTensor, RegionEntry, RowChunks, TensorCall, entry, exit,
    unwrap_or_unwind,
};
use crate::collectives::{CollectiveError, Pending, ProcessGroup};

impl<B: CollectiveBackend, C: CheckpointStrategy> CollectiveBackend for Autodiff<B, C> {
    const HAS_DEVICE_MEMORY: bool = B::HAS_DEVICE_MEMORY;

    fn tensor_engine(group: &ProcessGroup) -> &'static str {
        B::tensor_engine(group)
    }

    fn connect(groups: &[&ProcessGroup]) -> Result<(), CollectiveError> {
        B::connect(groups)
    }

    #[track_caller]
    fn collective(
        tensor: FloatTensor<Self>,
        call: TensorCall,
        mode: CallMode,
        group: &ProcessGroup,
    ) -> PendingTensor<Self> {
        B::collective(tensor.primitive, call, mode, group).map(FloatTensor::<Self>::new)
    }

    #[track_caller]
    fn send_start(tensor: FloatTensor<Self>, to: usize, group: &ProcessGroup) -> Pending<()> {
        B::send_start(tensor.primitive, to, group)
    }

    #[track_caller]
    fn recv_start(
        shape: Shape,
        dtype: DType,
        device: &Self::Device,
        from: usize,
        group: &ProcessGroup,
    ) -> PendingTensor<Self> {
        B::recv_start(shape, dtype, device, from, group).map(FloatTensor::<Self>::new)
    }

    #[track_caller]
    fn move_data(
        tensor: FloatTensor<Self>,
        movement: Movement,
        group: &ProcessGroup,
    ) -> Result<FloatTensor<Self>, CollectiveError> {
        B::move_data(tensor.primitive, movement, group).map(FloatTensor::<Self>::new)
    }

    #[track_caller]
    fn move_differentiable(
        tensor: FloatTensor<Self>,
        forward: Movement,
        backward: Movement,
        group: &ProcessGroup,
    ) -> FloatTensor<Self> {
        let moved = B::move_differentiable(tensor.primitive, forward, backward, group);
        match MoveGradient.prepare::<C>([tensor.node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((backward, group.clone()), moved),
            OpsKind::UnTracked(prep) => prep.finish(moved),
        }
    }

    #[track_caller]
    fn linear_into_region(inputs: LinearInputs<Self>, entry: RegionEntry, group: &ProcessGroup) -> Tensor<Self, 2> {
        entry::linear(inputs, entry, group)
    }

    #[track_caller]
    fn linear_out_of_region(inputs: LinearInputs<Self>, chunks: RowChunks, group: &ProcessGroup) -> Tensor<Self, 2> {
        exit::linear(inputs, chunks, group)
    }
}

/// The backward step of a movement: the gradient takes its own.
#[derive(Debug)]
struct MoveGradient;

impl<B: CollectiveBackend> Backward<B, 1> for MoveGradient {
    type State = (Movement, ProcessGroup);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let (movement, group) = ops.state;
        unary::<B, _>(ops.parents, ops.node, grads, |grad| {
            unwrap_or_unwind(B::move_data(grad, movement, &group))
        });
    }
}
