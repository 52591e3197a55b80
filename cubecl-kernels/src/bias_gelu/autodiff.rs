//! Bias and GELU as a node of the graph: keeps its inputs.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::Tensor;

use super::BiasGeluGradients;
use crate::KernelBackend;
use crate::accumulate::vectors::VectorDestination;
use crate::tape::{inner, keep, primitive, record};

pub(crate) fn bias_gelu<B: KernelBackend, C: CheckpointStrategy>(
    input: Tensor<Autodiff<B, C>, 2>,
    bias: Tensor<Autodiff<B, C>, 1>,
) -> Tensor<Autodiff<B, C>, 2> {
    let (x, b) = (inner(&input), inner(&bias));
    let output = B::bias_gelu(x.clone(), b.clone());
    let x = keep(x);
    let parents = [primitive(input), primitive(bias)];
    let destination = VectorDestination::of::<C>(&[&parents[1]]);
    record(parents, output, move |gradient, wanted| {
        let x = x.get();
        let Some(destination) = destination else {
            let BiasGeluGradients { input, bias } = B::bias_gelu_backward(x, b, gradient);
            return [wanted[0].then(|| primitive(input)), wanted[1].then(|| primitive(bias))];
        };
        let nothing = destination.nothing(&gradient);
        let input = destination.add(|to| B::bias_gelu_backward_into(x, b, gradient, to));
        [wanted[0].then(|| primitive(input)), Some(nothing)]
    })
}
