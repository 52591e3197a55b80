//! The two ends of a graph whose input comes from elsewhere and whose output goes elsewhere.

use std::sync::Arc;

use burn::tensor::Tensor;
use cubecl_kernels::tape::{inner, record, zero};
use parking_lot::Mutex;

/// Place where a gradient waits on its way into a graph or out of it.
#[derive(Clone, Debug)]
pub struct GradientSlot<const D: usize>(Arc<Mutex<Option<Tensor<D>>>>);

impl<const D: usize> Default for GradientSlot<D> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<const D: usize> GradientSlot<D> {
    /// Puts a gradient in.
    pub fn put(&self, gradient: Tensor<D>) {
        *self.0.lock() = Some(gradient);
    }

    /// Takes the gradient out, if it is there.
    pub fn take(&self) -> Option<Tensor<D>> {
        self.0.lock().take()
    }
}

/// Returns the start of a graph: `input`, which is of none, and whose gradient goes to `slot`.
pub fn enter<const D: usize>(input: Tensor<D>, slot: &GradientSlot<D>) -> Tensor<D> {
    let (leaf, slot) = (input.clone().autodiff().require_grad(), slot.clone());
    record(leaf, input, move |gradient, _| {
        slot.put(gradient);
        None
    })
}

/// Returns the end of a graph: one element, whose backward pass begins with the gradient in `slot` as that of `output`.
/// It does not keep `output`'s elements.
pub fn leave<const D: usize>(output: Tensor<D>, slot: &GradientSlot<D>) -> Tensor<1> {
    let one = zero(&inner(&output).device(), output.dtype());
    let slot = slot.clone();
    record(output, one, move |_, _| {
        Some(slot.take().expect("put there before the backward pass"))
    })
}
