//! The norms as nodes of the graph: they keep the input, or the sum, and two numbers a row.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::{Tensor, ops::FloatTensor};

use super::{Addends, NormGradients, NormParameters};
use crate::KernelBackend;
use crate::tape::{inner, primitive, record, record_two};

pub(crate) fn norm<B: KernelBackend, C: CheckpointStrategy>(
    input: Tensor<Autodiff<B, C>, 2>,
    parameters: NormParameters<Autodiff<B, C>>,
) -> Tensor<Autodiff<B, C>, 2> {
    let (x, inside) = (inner(&input), inner_parameters(&parameters));
    let (output, statistics) = B::norm_forward(x.clone(), &inside);
    let parents = [
        primitive(input),
        primitive(parameters.weight.clone()),
        bias_or_stand_in(&parameters),
    ];
    record(parents, output, move |gradient, wanted| {
        let gradients = B::norm_backward(x, &inside, statistics, gradient);
        let NormGradients { input, weight, bias } = gradients;
        [
            wanted[0].then(|| primitive(input)),
            wanted[1].then(|| primitive(weight)),
            bias.filter(|_| wanted[2]).map(primitive),
        ]
    })
}

pub(crate) fn add_norm<B: KernelBackend, C: CheckpointStrategy>(
    addends: Addends<Autodiff<B, C>>,
    parameters: NormParameters<Autodiff<B, C>>,
) -> [Tensor<Autodiff<B, C>, 2>; 2] {
    let (rule, inside) = (addends.rule(), inner_parameters(&parameters));
    let ([hidden, output], statistics) = B::add_norm_forward(inner_addends(&addends), &inside);
    let bias = match &addends.bias {
        Some(bias) => primitive(bias.clone()),
        None => stand_in(&parameters.weight),
    };
    let parents = [
        primitive(addends.input),
        primitive(addends.residual),
        bias,
        primitive(parameters.weight.clone()),
        bias_or_stand_in(&parameters),
    ];
    let kept = hidden.clone();
    record_two(parents, [hidden, output], move |gradients, wanted| {
        let (addends, norm) = B::add_norm_backward(kept, &inside, statistics, gradients, &rule);
        [
            wanted[0].then(|| primitive(addends.input)),
            wanted[1].then(|| primitive(addends.residual)),
            addends.bias.filter(|_| wanted[2]).map(primitive),
            wanted[3].then(|| primitive(norm.weight)),
            norm.bias.filter(|_| wanted[4]).map(primitive),
        ]
    })
}

/// The addends on the inner backend.
pub(crate) fn inner_addends<B: KernelBackend, C: CheckpointStrategy>(addends: &Addends<Autodiff<B, C>>) -> Addends<B> {
    Addends {
        input: inner(&addends.input),
        bias: addends.bias.as_ref().map(inner),
        residual: inner(&addends.residual),
        dropout: addends.dropout.clone(),
    }
}

fn inner_parameters<B: KernelBackend, C: CheckpointStrategy>(
    parameters: &NormParameters<Autodiff<B, C>>,
) -> NormParameters<B> {
    NormParameters {
        kind: parameters.kind,
        weight: inner(&parameters.weight),
        bias: parameters.bias.as_ref().map(inner),
        epsilon: parameters.epsilon,
    }
}

/// The bias as a parent of the node, or one in its place that no gradient goes to.
fn bias_or_stand_in<B: KernelBackend, C: CheckpointStrategy>(
    parameters: &NormParameters<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    match &parameters.bias {
        Some(bias) => primitive(bias.clone()),
        None => stand_in(&parameters.weight),
    }
}

fn stand_in<B: KernelBackend, C: CheckpointStrategy>(like: &Tensor<Autodiff<B, C>, 1>) -> FloatTensor<Autodiff<B, C>> {
    primitive(Tensor::<Autodiff<B, C>, 1>::from_inner(inner(like)))
}
