//! Cross-entropy over a shard of the vocabulary, ready for a loss whose vocabulary is shared out over ranks.
//!
//! One pass over the logits gives each row's maximum, its sum of exponentials and the target's logit; the caller
//! combines them over the ranks, and the backward pass writes `(softmax − onehot) · gradient` over the logits in one
//! more pass. The maximum is kept separate from the sum, and never added to its logarithm: for logits around 1e4, that
//! would lose the last four digits of the loss in f32.

mod flex;
pub mod host;
#[cfg(feature = "cubecl")]
mod kernel;
#[cfg(feature = "cubecl")]
mod launch;
mod reference;

use std::ops::Range;

use burn::tensor::{Int, Tensor};
#[cfg(feature = "cubecl")]
use burn_cubecl::tensor::CubeTensor;
use burn_flex::FlexTensor;

use crate::error::{Check, KernelError};
use crate::operation::parts::{Join, Names, Part, PartRule, joined};
use crate::operation::{Operation, Spec, apply};
use crate::precision::compute_type;
use crate::tape::{inner, record};

/// Statistics of each row in one shard, or in all of them together, `[rows]` each, in the type that is computed in.
#[derive(Clone, Debug)]
pub struct Statistics {
    /// The largest logit; −∞ where the shard has no valid column.
    pub maximum: Tensor<1>,
    /// `Σ exp(x − maximum)` over the valid columns; 0 where there is none.
    pub sum: Tensor<1>,
    /// The target's logit; 0 where the target is in another shard.
    pub target: Tensor<1>,
}

impl Statistics {
    /// The losses, `[rows]`, where these are the statistics of all shards.
    pub fn losses(&self) -> Tensor<1> {
        if self.sum.dims() == [0] {
            // On CUDA, there is no launch for no elements.
            return self.sum.clone();
        }
        self.sum.clone().log() - (self.target.clone() - self.maximum.clone())
    }
}

/// Computes each row's cross-entropy, `log Σ_v exp(x_v) − x_target`.
///
/// `combine` makes this shard's statistics those of all shards; it is not differentiated, and the backward pass needs
/// nothing from other ranks. The identity is that of a vocabulary in one shard.
///
/// # Shapes
/// - `logits`: `[rows, columns]`; the columns from `valid` on are padding, count for nothing and get a gradient of zero
/// - `targets`: `[rows]`, the columns of the targets; those outside `0..valid` are in other shards
/// - output: `[rows]`; f32, or f64 if the logits are
///
/// # Errors
/// When the shapes do not fit, `valid` is more than the columns, or the type is not computed with.
///
/// # Reference
/// Shoeybi et al. 2019, arXiv:1909.08053, section 3.
pub fn cross_entropy(
    logits: Tensor<2>,
    targets: Tensor<1, Int>,
    valid: usize,
    combine: impl FnOnce(Statistics) -> Statistics,
) -> Result<Tensor<1>, KernelError> {
    let check = Check("cross_entropy");
    check.float("the logits", logits.dtype(), &logits.device())?;
    let [rows, columns] = logits.dims();
    check.shape("the targets", &targets.dims(), &[rows])?;
    check.value("the number of valid columns", valid as f64, valid <= columns, || {
        format!("at most {columns}")
    })?;
    let (x, targets) = (inner(&logits), inner(&targets));
    let [maximum, sum, target] = apply(&Forward { valid }, (x.clone(), targets.clone()));
    let whole = combine(Statistics { maximum, sum, target });
    let [maximum, sum, target] = inner(&[whole.maximum, whole.sum, whole.target]);
    let whole = Statistics { maximum, sum, target };
    let losses = whole.losses();
    // The logits are given up, to be written over.
    Ok(record(logits, losses, move |gradient, _| {
        let of_rows = [whole.maximum, whole.sum, gradient];
        Some(apply(&Backward { valid }, (x, targets, of_rows)))
    }))
}

/// Logits and targets to each row's maximum, sum and target's logit.
#[derive(Clone, Copy, Debug)]
struct Forward {
    valid: usize,
}

impl Operation for Forward {
    type Inputs = (Tensor<2>, Tensor<1, Int>);
    type Outputs = [Tensor<1>; 3];

    const NAME: &'static str = "cross_entropy_statistics";

    fn outputs(&self, ((_, dtype), (rows, _)): (Spec, Spec)) -> [Spec; 3] {
        std::array::from_fn(|_| (rows.clone(), compute_type(dtype)))
    }

    fn part_rule(&self, _inputs: (Spec, Spec)) -> Option<PartRule> {
        Names::of::<Self>(("rv", "r"), ["r"; 3]).joined("v").rule()
    }

    /// Statistics of the whole vocabulary. Where ranks have parts of it, of `rows` and of `2 * rows` elements.
    fn run_part(&self, (logits, targets): Self::Inputs, part: &dyn Part) -> Self::Outputs {
        let (targets, valid) = of_columns(targets, self.valid, &part.range(0, 1));
        let [own, sum, target] = apply(&Self { valid }, (logits, targets));
        if part.is_all(0, 1) {
            return [own, sum, target];
        }
        const VOCABULARY: (usize, usize) = (0, 1);
        let [rows] = sum.dims();
        let maximum = joined(part, own.clone(), Join::Max, VOCABULARY, 0);
        // 0 on a rank of padding alone, whose own maximum is −∞.
        let sum = sum * (own - maximum.clone()).exp();
        let both = Tensor::cat(vec![sum.unsqueeze::<2>(), target.unsqueeze::<2>()], 0);
        let both = joined(part, both, Join::Sum, VOCABULARY, 1);
        let [sum, target] = [0, 1].map(|index| both.clone().narrow(0, index, 1).reshape([rows]));
        [maximum, sum, target]
    }

    fn reference(&self, (logits, targets): Self::Inputs) -> Self::Outputs {
        reference::statistics(logits, targets, self.valid)
    }

    fn flex(&self, (logits, targets): (FlexTensor, FlexTensor)) -> [FlexTensor; 3] {
        flex::statistics(logits, targets, self.valid)
    }

    #[cfg(feature = "cubecl")]
    fn cube(&self, (logits, targets): (CubeTensor, CubeTensor)) -> [CubeTensor; 3] {
        launch::statistics(logits, targets, self.valid)
    }
}

/// Logits, targets, and the rows' maxima, sums and losses' gradients to the logits' gradient.
#[derive(Clone, Copy, Debug)]
struct Backward {
    valid: usize,
}

impl Operation for Backward {
    type Inputs = (Tensor<2>, Tensor<1, Int>, [Tensor<1>; 3]);
    type Outputs = Tensor<2>;

    const NAME: &'static str = "cross_entropy_backward";

    fn outputs(&self, (logits, _, _): (Spec, Spec, [Spec; 3])) -> Spec {
        logits
    }

    fn part_rule(&self, _inputs: (Spec, Spec, [Spec; 3])) -> Option<PartRule> {
        Names::of::<Self>(("rv", "r", ["r"; 3]), "rv").linear_in_last().rule()
    }

    fn run_part(&self, (logits, targets, of_rows): Self::Inputs, part: &dyn Part) -> Tensor<2> {
        let (targets, valid) = of_columns(targets, self.valid, &part.range(0, 1));
        apply(&Self { valid }, (logits, targets, of_rows))
    }

    fn reference(&self, (logits, targets, of_rows): Self::Inputs) -> Tensor<2> {
        reference::backward(logits, targets, self.valid, of_rows)
    }

    fn flex(&self, (logits, targets, of_rows): (FlexTensor, FlexTensor, [FlexTensor; 3])) -> FlexTensor {
        flex::backward(logits, targets, self.valid, of_rows)
    }

    #[cfg(feature = "cubecl")]
    fn cube(&self, (logits, targets, of_rows): (CubeTensor, CubeTensor, [CubeTensor; 3])) -> CubeTensor {
        launch::backward(logits, targets, self.valid, of_rows)
    }
}

/// Returns the targets as columns of a part of the vocabulary, and how many of its columns count.
fn of_columns(targets: Tensor<1, Int>, valid: usize, own: &Range<usize>) -> (Tensor<1, Int>, usize) {
    let targets = match own.start {
        0 => targets,
        start => targets - start as i64,
    };
    (targets, valid.clamp(own.start, own.end) - own.start)
}
