//! The cross-entropy as a node of the graph: keeps the logits, to be written over.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::{Int, Tensor};

use super::{LossTerms, ShardStatistics};
use crate::KernelBackend;
use crate::tape::{inner, primitive, record};

pub(crate) fn cross_entropy<B: KernelBackend, C: CheckpointStrategy>(
    logits: Tensor<Autodiff<B, C>, 2>,
    targets: Tensor<Autodiff<B, C>, 1, Int>,
    valid: usize,
    combine: impl FnOnce(ShardStatistics<Autodiff<B, C>>) -> LossTerms<Autodiff<B, C>>,
) -> Tensor<Autodiff<B, C>, 1> {
    let (x, targets) = (inner(&logits), targets.inner());
    let ShardStatistics { maximum, sum, target } = B::cross_entropy_statistics(x.clone(), targets.clone(), valid);
    let terms = combine(ShardStatistics {
        maximum: Tensor::from_inner(maximum),
        sum: Tensor::from_inner(sum),
        target: Tensor::from_inner(target),
    });
    let (log_sum_exp, target) = (terms.log_sum_exp.inner(), terms.target.inner());
    let loss = log_sum_exp.clone() - target;
    record([primitive(logits)], loss, move |gradient, _| {
        let gradient = B::cross_entropy_backward(x, targets, valid, log_sum_exp, gradient);
        [Some(primitive(gradient))]
    })
}
