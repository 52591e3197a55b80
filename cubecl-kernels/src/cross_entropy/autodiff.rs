//! The cross-entropy as a node of the graph: keeps the logits, to be written over.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::{Int, Tensor};

use super::Statistics;
use crate::KernelBackend;
use crate::tape::{inner, primitive, record};

pub(crate) fn cross_entropy<B: KernelBackend, C: CheckpointStrategy>(
    logits: Tensor<Autodiff<B, C>, 2>,
    targets: Tensor<Autodiff<B, C>, 1, Int>,
    valid: usize,
    combine: impl FnOnce(Statistics<Autodiff<B, C>>) -> Statistics<Autodiff<B, C>>,
) -> Tensor<Autodiff<B, C>, 1> {
    let (x, targets) = (inner(&logits), targets.inner());
    let Statistics { maximum, sum, target } = B::cross_entropy_statistics(x.clone(), targets.clone(), valid);
    let whole = combine(Statistics {
        maximum: Tensor::from_inner(maximum),
        sum: Tensor::from_inner(sum),
        target: Tensor::from_inner(target),
    });
    let whole = Statistics {
        maximum: whole.maximum.inner(),
        sum: whole.sum.inner(),
        target: whole.target.inner(),
    };
    record([primitive(logits)], whole.losses(), move |gradient, _| {
        let gradient = B::cross_entropy_backward(x, targets, valid, whole, gradient);
        [Some(primitive(gradient))]
    })
}
