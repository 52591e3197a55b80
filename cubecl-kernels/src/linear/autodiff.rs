//! The product as a node of the graph: keeps input and weight.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::{Tensor, backend::Backend, ops::FloatTensor};

use super::{LinearInputs, LinearWanted};
use crate::KernelBackend;
use crate::tape::{inner, primitive, record};

pub(crate) fn linear<B: KernelBackend, C: CheckpointStrategy>(
    inputs: LinearInputs<Autodiff<B, C>>,
) -> Tensor<Autodiff<B, C>, 2> {
    let LinearInputs {
        input,
        weight,
        bias,
        order,
    } = inputs;
    let (x, w) = (inner(&input), inner(&weight));
    let output = B::affine(LinearInputs {
        input: x.clone(),
        weight: w.clone(),
        bias: bias.as_ref().map(inner),
        order,
    });
    let rule = move |gradient, wanted| B::affine_backward(x, w, order, gradient, wanted);
    match bias {
        Some(bias) => record(
            [primitive(input), primitive(weight), primitive(bias)],
            output,
            move |gradient, [input, weight, bias]| {
                let gradients = rule(gradient, LinearWanted { input, weight, bias });
                [of(gradients.input), of(gradients.weight), gradients.bias.map(primitive)]
            },
        ),
        None => record(
            [primitive(input), primitive(weight)],
            output,
            move |gradient, [input, weight]| {
                let bias = false;
                let gradients = rule(gradient, LinearWanted { input, weight, bias });
                [of(gradients.input), of(gradients.weight)]
            },
        ),
    }
}

fn of<B: Backend>(gradient: Option<Tensor<B, 2>>) -> Option<FloatTensor<B>> {
    gradient.map(primitive)
}
