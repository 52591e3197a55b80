//! Where a graph begins and ends when its input comes from elsewhere and its output goes elsewhere.

use std::sync::Arc;

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::tensor::TensorMetadata;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use cubecl_kernels::tape::{primitive, zero};
use parking_lot::Mutex;

/// Where a gradient waits on its way into a graph or out of it.
#[derive(Debug)]
pub struct GradientSlot<B: Backend>(Arc<Mutex<Option<FloatTensor<B>>>>);

impl<B: Backend> Clone for GradientSlot<B> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<B: Backend> Default for GradientSlot<B> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<B: Backend> GradientSlot<B> {
    /// Puts a gradient in.
    pub fn put(&self, gradient: FloatTensor<B>) {
        *self.0.lock() = Some(gradient);
    }

    /// Takes the gradient out, if it is there.
    pub fn take(&self) -> Option<FloatTensor<B>> {
        self.0.lock().take()
    }
}

/// Returns the start of a graph: `input`, whose gradient goes to `slot`.
pub(super) fn enter<B: Backend, C: CheckpointStrategy>(
    input: FloatTensor<B>,
    slot: &GradientSlot<B>,
) -> FloatTensor<Autodiff<B, C>> {
    let leaf = FloatTensor::<Autodiff<B, C>>::new(input).require_grad();
    match CatchGradient.prepare::<C>([leaf.node]).compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish(slot.clone(), leaf.primitive),
        OpsKind::UnTracked(_) => unreachable!("the leaf is tracked"),
    }
}

/// Returns the end of a graph: one element, whose backward pass begins with the gradient in `slot`.
pub(super) fn leave<B: Backend, C: CheckpointStrategy>(
    output: FloatTensor<Autodiff<B, C>>,
    slot: &GradientSlot<B>,
) -> FloatTensor<Autodiff<B, C>> {
    let device = B::float_device(&output.primitive);
    let one = primitive(zero::<B, 1>(&device, output.primitive.dtype()));
    match PutGradient.prepare::<C>([output.node]).compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish(slot.clone(), one),
        OpsKind::UnTracked(prep) => prep.finish(one),
    }
}

/// The backward step of a segment's input.
#[derive(Debug)]
struct CatchGradient;

impl<B: Backend> Backward<B, 1> for CatchGradient {
    type State = GradientSlot<B>;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        ops.state.put(grads.consume::<B>(&ops.node));
    }
}

/// The backward step of a segment's root.
#[derive(Debug)]
struct PutGradient;

impl<B: Backend> Backward<B, 1> for PutGradient {
    type State = GradientSlot<B>;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        grads.consume::<B>(&ops.node);
        let gradient = ops.state.take().expect("put there before the backward pass");
        let [parent] = ops.parents;
        if let Some(parent) = parent {
            grads.register::<B>(parent.id, gradient);
        }
    }
}
