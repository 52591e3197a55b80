//! The softmax as a node of the graph: keeps its output.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::Tensor;

use super::SoftmaxMask;
use crate::KernelBackend;
use crate::tape::{inner, keep, primitive, record};

pub(crate) fn scaled_masked_softmax<B: KernelBackend, C: CheckpointStrategy>(
    scores: Tensor<Autodiff<B, C>, 4>,
    mask: SoftmaxMask<Autodiff<B, C>>,
    scale: f64,
) -> Tensor<Autodiff<B, C>, 4> {
    let mask = match mask {
        SoftmaxMask::Nothing => SoftmaxMask::Nothing,
        SoftmaxMask::Causal => SoftmaxMask::Causal,
        SoftmaxMask::Given(mask) => SoftmaxMask::Given(mask.inner()),
    };
    let output = B::scaled_masked_softmax(inner(&scores), mask, scale);
    let kept = keep(output.clone());
    record([primitive(scores)], output, move |gradient, _| {
        [Some(primitive(B::scaled_masked_softmax_backward(
            kept.get(),
            gradient,
            scale,
        )))]
    })
}
