//! The product as a node of the graph: keeps the input, and the weight or where it comes from.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::{Tensor, backend::Backend};

use super::destination::{self, LinearSinks};
use super::retained::RetainedWeight;
use super::{LinearGradients, LinearInputs, LinearWanted};
use crate::KernelBackend;
use crate::tape::{inner, keep, or_stand_in, primitive, record};

pub(crate) fn linear<B: KernelBackend, C: CheckpointStrategy>(
    inputs: LinearInputs<Autodiff<B, C>>,
) -> Tensor<Autodiff<B, C>, 2> {
    let own = inner_inputs(&inputs);
    let (x, order) = (keep(own.input.clone()), own.order);
    let weight = RetainedWeight::of(&inputs.weight);
    record_linear(inputs, B::affine(own), move |gradient, wanted, sinks| {
        destination::gradients(x.get(), weight.get(), order, gradient, wanted, sinks)
    })
}

/// The inner backend's tensors.
pub fn inner_inputs<B: Backend, C: CheckpointStrategy>(inputs: &LinearInputs<Autodiff<B, C>>) -> LinearInputs<B> {
    LinearInputs {
        input: inner(&inputs.input),
        weight: inner(&inputs.weight),
        bias: inputs.bias.as_ref().map(inner),
        order: inputs.order,
    }
}

/// Returns `output`, a product of `inputs`, as a node of the graph, with `rule` for its backward step: from the
/// output's gradient, those that are wanted; those of weight and bias through [`destination::gradients`], with the
/// sinks that it is given.
pub fn record_linear<B: Backend, C: CheckpointStrategy>(
    inputs: LinearInputs<Autodiff<B, C>>,
    output: Tensor<B, 2>,
    rule: impl FnOnce(Tensor<B, 2>, LinearWanted, LinearSinks<B>) -> LinearGradients<B> + Send + 'static,
) -> Tensor<Autodiff<B, C>, 2> {
    let LinearInputs {
        input, weight, bias, ..
    } = inputs;
    let parents = [primitive(input.clone()), primitive(weight), or_stand_in(bias, &input)];
    let sinks = LinearSinks::of::<C>(&parents[1], &parents[2]);
    record(parents, output, move |gradient, [input, weight, bias]| {
        let gradients = rule(gradient, LinearWanted { input, weight, bias }, sinks);
        [
            gradients.input.map(primitive),
            gradients.weight.map(primitive),
            gradients.bias.map(primitive),
        ]
    })
}
