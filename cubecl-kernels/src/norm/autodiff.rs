//! The norms as nodes of the graph: they keep the input, or the sum, and two numbers a row.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::{Tensor, ops::FloatTensor};

use super::{AddRule, Addends, NormGradients, NormParameters};
use crate::KernelBackend;
use crate::accumulate::vectors::VectorDestination;
use crate::bias_dropout_add::autodiff::inner_addends;
use crate::tape::{inner, keep, or_stand_in, primitive, record, record_two};

pub(crate) fn norm<B: KernelBackend, C: CheckpointStrategy>(
    input: Tensor<Autodiff<B, C>, 2>,
    parameters: NormParameters<Autodiff<B, C>>,
) -> Tensor<Autodiff<B, C>, 2> {
    let (x, inside) = (inner(&input), inner_parameters(&parameters));
    let (output, statistics) = B::norm_forward(x.clone(), &inside);
    let has_bias = parameters.bias.is_some();
    let bias = or_stand_in(parameters.bias, &input);
    let parents = [primitive(input), primitive(parameters.weight), bias];
    let destination = destination_of::<B, C, 2>([&parents[1], &parents[2]], [true, has_bias]);
    let x = keep(x);
    record(parents, output, move |gradient, wanted| {
        let x = x.get();
        let Some(destination) = destination else {
            let NormGradients { input, weight, bias } = B::norm_backward(x, &inside, statistics, gradient);
            return [
                wanted[0].then(|| primitive(input)),
                wanted[1].then(|| primitive(weight)),
                bias.filter(|_| wanted[2]).map(primitive),
            ];
        };
        let nothing = destination.nothing(&gradient);
        let input = destination.add(|to| {
            let added = B::norm_backward_into(x, &inside, statistics, [None, Some(gradient)], None, to);
            (added.input, added.sums)
        });
        [
            wanted[0].then(|| primitive(input)),
            Some(nothing.clone()),
            has_bias.then_some(nothing),
        ]
    })
}

pub(crate) fn norm_of_stream<B: KernelBackend, C: CheckpointStrategy>(
    stream: Tensor<Autodiff<B, C>, 2>,
    parameters: NormParameters<Autodiff<B, C>>,
) -> [Tensor<Autodiff<B, C>, 2>; 2] {
    let (x, inside) = (inner(&stream), inner_parameters(&parameters));
    let (output, statistics) = B::norm_forward(x.clone(), &inside);
    let has_bias = parameters.bias.is_some();
    let bias = or_stand_in(parameters.bias, &stream);
    let parents = [primitive(stream), primitive(parameters.weight), bias];
    let destination = destination_of::<B, C, 2>([&parents[1], &parents[2]], [true, has_bias]);
    let kept = keep(x.clone());
    record_two(parents, [x, output], move |gradients, wanted| {
        let kept = kept.get();
        // A sum with nothing: of its backward pass, the gradient of the residual is that of the stream.
        let rule = AddRule {
            has_bias: false,
            dropout: None,
        };
        let Some(destination) = destination else {
            let (addends, norm) = B::add_norm_backward(kept, &inside, statistics, gradients, &rule);
            return [
                wanted[0].then(|| primitive(addends.residual)),
                wanted[1].then(|| primitive(norm.weight)),
                norm.bias.filter(|_| wanted[2]).map(primitive),
            ];
        };
        let nothing = destination.nothing(&kept);
        let input = destination.add(|to| {
            let added = B::norm_backward_into(kept, &inside, statistics, gradients, Some(&rule), to);
            (added.input, added.sums)
        });
        [
            wanted[0].then(|| primitive(input)),
            Some(nothing.clone()),
            has_bias.then_some(nothing),
        ]
    })
}

pub(crate) fn add_norm<B: KernelBackend, C: CheckpointStrategy>(
    addends: Addends<Autodiff<B, C>>,
    parameters: NormParameters<Autodiff<B, C>>,
) -> [Tensor<Autodiff<B, C>, 2>; 2] {
    let (rule, inside) = (addends.rule(), inner_parameters(&parameters));
    let ([hidden, output], statistics) = B::add_norm_forward(inner_addends(&addends), &inside);
    let [has_addend_bias, has_bias] = [rule.has_bias, parameters.bias.is_some()];
    let biases = [addends.bias, parameters.bias].map(|bias| or_stand_in(bias, &addends.input));
    let [input, residual] = [addends.input, addends.residual].map(primitive);
    let [addend_bias, bias] = biases;
    let parents = [input, residual, addend_bias, primitive(parameters.weight), bias];
    let kept = keep(hidden.clone());
    let vectors = [&parents[3], &parents[4], &parents[2]];
    let destination = destination_of::<B, C, 3>(vectors, [true, has_bias, has_addend_bias]);
    record_two(parents, [hidden, output], move |gradients, wanted| {
        let kept = kept.get();
        let Some(destination) = destination else {
            let (addends, norm) = B::add_norm_backward(kept, &inside, statistics, gradients, &rule);
            return [
                wanted[0].then(|| primitive(addends.input)),
                wanted[1].then(|| primitive(addends.residual)),
                addends.bias.filter(|_| wanted[2]).map(primitive),
                wanted[3].then(|| primitive(norm.weight)),
                norm.bias.filter(|_| wanted[4]).map(primitive),
            ];
        };
        let nothing = destination.nothing(&kept);
        let (residual, addend) = destination.add(|to| {
            let added = B::norm_backward_into(kept, &inside, statistics, gradients, Some(&rule), to);
            ((added.input, added.addend), added.sums)
        });
        [
            addend.filter(|_| wanted[0]).map(primitive),
            wanted[1].then(|| primitive(residual)),
            has_addend_bias.then(|| nothing.clone()),
            Some(nothing.clone()),
            has_bias.then_some(nothing),
        ]
    })
}

/// Where the gradients of those vectors go that are there, if they all go to one place.
fn destination_of<B: KernelBackend, C: CheckpointStrategy, const N: usize>(
    vectors: [&FloatTensor<Autodiff<B, C>>; N],
    is_there: [bool; N],
) -> Option<VectorDestination<B>> {
    let there = vectors.into_iter().zip(is_there);
    let there: Vec<_> = there
        .filter_map(|(vector, is_there)| is_there.then_some(vector))
        .collect();
    VectorDestination::of::<C>(&there)
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
