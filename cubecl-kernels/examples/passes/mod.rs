//! Forward and backward passes of operations, each on its own, for the benches here.

use std::sync::Arc;

use burn::backend::DispatchTensor;
use burn::tensor::{DType, Device, Tensor};
use cubecl_kernels::KernelError;
use cubecl_kernels::norm::{Addends, NormKind, NormParameters, layer_norm, rms_norm};
use cubecl_kernels::tape::{record, zero};
use parking_lot::Mutex;

/// Backward passes whose forward passes are done: the last that was added runs first, the others after it.
pub struct Passes {
    /// What the next pass comes after in the graph, so that it is over before those that were added earlier begin.
    end: Tensor<1>,
    /// Gradients of the inputs of the first pass, which runs last.
    gradients: Arc<Mutex<Vec<DispatchTensor>>>,
    is_empty: bool,
}

impl Passes {
    /// Returns no passes on a device that does not differentiate.
    pub fn new(device: &Device) -> Self {
        Self {
            end: zero::<1>(device, DType::F32).autodiff().require_grad(),
            gradients: Arc::default(),
            is_empty: true,
        }
    }

    /// Returns an input of the next pass. Its gradient is dropped at once, so that passes need the memory of one.
    pub fn track<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        let kept = self.is_empty.then(|| self.gradients.clone());
        record(self.end.clone(), input, move |gradient, _| {
            if let Some(kept) = kept {
                kept.lock().push(gradient.into_dispatch());
            }
            None
        })
    }

    /// Returns parameters of a norm of the next pass.
    pub fn track_parameters(&self, parameters: NormParameters) -> NormParameters {
        NormParameters {
            weight: self.track(parameters.weight),
            bias: parameters.bias.map(|bias| self.track(bias)),
            ..parameters
        }
    }

    /// Returns addends of the next pass.
    pub fn track_addends(&self, addends: Addends) -> Addends {
        Addends {
            input: self.track(addends.input),
            bias: addends.bias.map(|bias| self.track(bias)),
            residual: self.track(addends.residual),
            dropout: addends.dropout,
        }
    }

    /// Adds a pass: that of outputs of such inputs, for their gradients.
    pub fn add<const N: usize, const D: usize>(&mut self, outputs: [Tensor<D>; N], gradients: [Tensor<D>; N]) {
        for (output, gradient) in outputs.into_iter().zip(gradients) {
            let nothing = zero::<1>(&gradient.device(), DType::F32);
            let parents = (self.end.clone(), output);
            self.end = record(parents, nothing.clone(), move |_, _| (Some(nothing), Some(gradient)));
        }
        self.is_empty = false;
    }

    /// Runs the passes. Returns the gradients of the first one's inputs.
    pub fn run(self) -> Vec<DispatchTensor> {
        drop(self.end.backward());
        std::mem::take(&mut self.gradients.lock())
    }
}

/// Applies a norm of either kind.
pub fn norm(input: Tensor<2>, parameters: NormParameters) -> Result<Tensor<2>, KernelError> {
    let NormParameters {
        kind,
        weight,
        bias,
        epsilon,
    } = parameters;
    match kind {
        NormKind::Layer => layer_norm(input, weight, bias, epsilon),
        NormKind::Rms => rms_norm(input, weight, epsilon),
    }
}
