//! The product as a node of the graph: keeps input and weight.

use std::sync::Arc;

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::{Tensor, backend::Backend, ops::FloatTensor};

use super::destination::{self, WeightSink};
use super::{LinearGradients, LinearInputs, LinearWanted};
use crate::KernelBackend;
use crate::tape::{inner, primitive, record};

pub(crate) fn linear<B: KernelBackend, C: CheckpointStrategy>(
    inputs: LinearInputs<Autodiff<B, C>>,
) -> Tensor<Autodiff<B, C>, 2> {
    let own = inner_inputs(&inputs);
    let (x, w, order) = (own.input.clone(), own.weight.clone(), own.order);
    record_linear(inputs, B::affine(own), move |gradient, wanted, sink| {
        destination::gradients(x, w, order, gradient, wanted, sink)
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

/// Where a weight's gradient goes in place of the graph, if anywhere.
type Sink<B> = Option<Arc<dyn WeightSink<B>>>;

/// Returns `output`, a product of `inputs`, as a node of the graph, with `rule` for its backward step: from the
/// output's gradient, those that are wanted; that of the weight through [`destination::gradients`], with the sink that
/// it is given.
pub fn record_linear<B: Backend, C: CheckpointStrategy>(
    inputs: LinearInputs<Autodiff<B, C>>,
    output: Tensor<B, 2>,
    rule: impl FnOnce(Tensor<B, 2>, LinearWanted, Sink<B>) -> LinearGradients<B> + Send + 'static,
) -> Tensor<Autodiff<B, C>, 2> {
    let LinearInputs {
        input, weight, bias, ..
    } = inputs;
    let weight = primitive(weight);
    let sink = destination::sink_of::<B, C>(&weight);
    match bias {
        Some(bias) => record(
            [primitive(input), weight, primitive(bias)],
            output,
            move |gradient, [input, weight, bias]| {
                let gradients = rule(gradient, LinearWanted { input, weight, bias }, sink);
                [of(gradients.input), of(gradients.weight), gradients.bias.map(primitive)]
            },
        ),
        None => record([primitive(input), weight], output, move |gradient, [input, weight]| {
            let bias = false;
            let gradients = rule(gradient, LinearWanted { input, weight, bias }, sink);
            [of(gradients.input), of(gradients.weight)]
        }),
    }
}

fn of<B: Backend>(gradient: Option<Tensor<B, 2>>) -> Option<FloatTensor<B>> {
    gradient.map(primitive)
}
