//! The fused cross-entropy: each rank its rows, or its part of the vocabulary.

use burn::tensor::{Int, Tensor};
use cubecl_kernels::cross_entropy::Statistics;

use super::super::Sharded;
use super::super::apply::{Placed, apply};
use super::super::placement::Reduction;
use super::super::rules::module::Named;
use super::{FloatSharded, local, placed, primitive, tensor};
use crate::collectives::CollectiveBackend;

/// The statistics of the whole vocabulary. Where it is cut, two all-reduces for each axis that cuts it, of `rows` and
/// of `2 * rows` elements.
pub(super) fn statistics<B: CollectiveBackend>(
    logits: Tensor<Sharded<B>, 2>,
    targets: Tensor<Sharded<B>, 1, Int>,
    valid: usize,
) -> Statistics<Sharded<B>> {
    let columns = logits.dims()[1];
    let rule = || Box::new(Named::new("rv,r->r,r,r").joined(b"v")) as _;
    let operands = (placed(logits), targets.into_primitive());
    let run = |(logits, targets), placed: &Placed| {
        let (targets, valid) = of_part(Tensor::from_primitive(targets), valid, columns, placed);
        let own = B::cross_entropy_statistics(local(logits), targets, valid);
        let whole = if placed.has_all(0, 1) { own } else { join(own, placed) };
        let all = [whole.maximum, whole.sum, whole.target];
        all.map(|statistic| Some(primitive(statistic))).to_vec()
    };
    let results: Vec<Option<FloatSharded<B>>> = apply("cross_entropy", operands, rule, run);
    let mut results = results.into_iter().flatten().map(tensor);
    let mut next = || results.next().expect("one for each name");
    Statistics {
        maximum: next(),
        sum: next(),
        target: next(),
    }
}

pub(super) fn backward<B: CollectiveBackend>(
    logits: Tensor<Sharded<B>, 2>,
    targets: Tensor<Sharded<B>, 1, Int>,
    valid: usize,
    whole: Statistics<Sharded<B>>,
    gradient: Tensor<Sharded<B>, 1>,
) -> Tensor<Sharded<B>, 2> {
    let columns = logits.dims()[1];
    let rule = || Box::new(Named::new("rv,r,r,r,r,r->rv").linear(&[5])) as _;
    let Statistics { maximum, sum, target } = whole;
    let statistics = (placed(maximum), placed(sum), placed(target));
    let operands = (placed(logits), targets.into_primitive(), statistics, placed(gradient));
    let run = |(logits, targets, (maximum, sum, target), gradient), placed: &Placed| {
        let (targets, valid) = of_part(Tensor::from_primitive(targets), valid, columns, placed);
        let whole = Statistics {
            maximum: local(maximum),
            sum: local(sum),
            target: local(target),
        };
        primitive(B::cross_entropy_backward(
            local(logits),
            targets,
            valid,
            whole,
            local(gradient),
        ))
    };
    tensor(apply("cross_entropy_backward", operands, rule, run))
}

/// The targets as columns of this rank's part of the vocabulary, and how many of its columns count.
fn of_part<B: CollectiveBackend>(
    targets: Tensor<B, 1, Int>,
    valid: usize,
    columns: usize,
    placed: &Placed,
) -> (Tensor<B, 1, Int>, usize) {
    let own = placed.operand_range(0, 1, columns);
    let targets = match own.start {
        0 => targets,
        start => targets - start as i64,
    };
    (targets, valid.clamp(own.start, own.end) - own.start)
}

/// The statistics of all parts of the vocabulary.
fn join<B: CollectiveBackend>(own: Statistics<B>, placed: &Placed) -> Statistics<B> {
    const VOCABULARY: (usize, usize) = (0, 1);
    let [rows] = own.sum.dims();
    let maximum = primitive(own.maximum.clone());
    let maximum: Tensor<B, 1> = local(placed.joined::<B>(maximum, Reduction::Max, VOCABULARY, 0));
    // 0 on a rank of padding alone, whose own maximum is −∞.
    let sum = own.sum * (own.maximum - maximum.clone()).exp();
    // The sum of exponentials and the target's logit travel together: `[2, rows]`.
    let both = Tensor::cat(vec![sum.unsqueeze::<2>(), own.target.unsqueeze::<2>()], 0);
    let both: Tensor<B, 2> = local(placed.joined::<B>(primitive(both), Reduction::Sum, VOCABULARY, 1));
    let [sum, target] = [0, 1].map(|index| both.clone().narrow(0, index, 1).reshape([rows]));
    Statistics { maximum, sum, target }
}
