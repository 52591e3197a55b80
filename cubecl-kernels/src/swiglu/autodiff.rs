//! SwiGLU as a node of the graph: keeps its input.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::Tensor;

use crate::KernelBackend;
use crate::tape::{inner, keep, primitive, record};

pub(crate) fn swiglu<B: KernelBackend, C: CheckpointStrategy>(
    input: Tensor<Autodiff<B, C>, 2>,
) -> Tensor<Autodiff<B, C>, 2> {
    let x = inner(&input);
    let output = B::swiglu(x.clone());
    let x = keep(x);
    record([primitive(input)], output, move |gradient, _| {
        [Some(primitive(B::swiglu_backward(x.get(), gradient)))]
    })
}
