//! Bias and GELU as a node of the graph: keeps its inputs.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::Tensor;

use super::BiasGeluGradients;
use crate::KernelBackend;
use crate::tape::{inner, primitive, record};

pub(crate) fn bias_gelu<B: KernelBackend, C: CheckpointStrategy>(
    input: Tensor<Autodiff<B, C>, 2>,
    bias: Tensor<Autodiff<B, C>, 1>,
) -> Tensor<Autodiff<B, C>, 2> {
    let (x, b) = (inner(&input), inner(&bias));
    let output = B::bias_gelu(x.clone(), b.clone());
    record([primitive(input), primitive(bias)], output, move |gradient, wanted| {
        let BiasGeluGradients { input, bias } = B::bias_gelu_backward(x, b, gradient);
        [wanted[0].then(|| primitive(input)), wanted[1].then(|| primitive(bias))]
    })
}
