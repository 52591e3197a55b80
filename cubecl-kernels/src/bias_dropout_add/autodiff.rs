//! The sum as a node of the graph: keeps nothing.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::Tensor;

use super::Addends;
use crate::KernelBackend;
use crate::accumulate::vectors::VectorDestination;
use crate::tape::{inner, or_stand_in, primitive, record};

pub(crate) fn bias_dropout_add<B: KernelBackend, C: CheckpointStrategy>(
    addends: Addends<Autodiff<B, C>>,
) -> Tensor<Autodiff<B, C>, 2> {
    let rule = addends.rule();
    let output = B::bias_dropout_add(inner_addends(&addends));
    let bias = or_stand_in(addends.bias, &addends.input);
    let destination = VectorDestination::of::<C>(&[&bias]);
    let parents = [primitive(addends.input), primitive(addends.residual), bias];
    record(parents, output, move |gradient, wanted| {
        let Some(destination) = destination else {
            let gradients = B::bias_dropout_add_backward(gradient, &rule);
            return [
                wanted[0].then(|| primitive(gradients.input)),
                wanted[1].then(|| primitive(gradients.residual)),
                gradients.bias.filter(|_| wanted[2]).map(primitive),
            ];
        };
        let nothing = destination.nothing(&gradient);
        let residual = wanted[1].then(|| primitive(gradient.clone()));
        let input = destination.add(|to| B::bias_dropout_add_backward_into(gradient, &rule, to));
        [wanted[0].then(|| primitive(input)), residual, Some(nothing)]
    })
}

pub(crate) fn inner_addends<B: KernelBackend, C: CheckpointStrategy>(addends: &Addends<Autodiff<B, C>>) -> Addends<B> {
    Addends {
        input: inner(&addends.input),
        bias: addends.bias.as_ref().map(inner),
        residual: inner(&addends.residual),
        dropout: addends.dropout.clone(),
    }
}
