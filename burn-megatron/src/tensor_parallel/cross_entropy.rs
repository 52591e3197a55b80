//! Cross-entropy over a vocabulary that is shared out over the tensor-parallel group: a language model's loss.

use burn::module::Module;
use burn::tensor::{Bool, Int, Tensor};
use cubecl_kernels::cross_entropy::{Statistics, cross_entropy};
use cubecl_kernels::ranges::{BufferRange, gather_ranges};

use super::checked;
use crate::collectives::{ProcessGroup, ReduceOp, TensorCall, run, unwrap_or_unwind};

/// The range of a padded vocabulary that a rank holds.
#[derive(Module, Copy, Debug, PartialEq, Eq)]
pub struct VocabShard {
    size: usize,
    start: usize,
    rows: usize,
    valid: usize,
}

impl VocabShard {
    /// Returns this rank's range of a vocabulary of `size` tokens padded to `padded`, which the group's size divides.
    pub fn new(size: usize, padded: usize, group: &ProcessGroup) -> Self {
        let rows = padded / group.size();
        let start = group.rank() * rows;
        Self {
            size,
            start,
            rows,
            valid: size.saturating_sub(start).min(rows),
        }
    }

    /// The tokens of the whole vocabulary, without padding.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The first token of the range.
    pub fn start(&self) -> usize {
        self.start
    }

    /// The rows of the range, padding included.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The rows of the range that stand for a token; the others are padding.
    pub fn valid(&self) -> usize {
        self.valid
    }

    /// Returns each token's row in this range, 0 for a token outside it, and whether it is outside.
    pub(super) fn localize(&self, tokens: Tensor<1, Int>) -> (Tensor<1, Int>, Tensor<1, Bool>) {
        let local = tokens - self.start as i64;
        let elsewhere = local
            .clone()
            .lower_elem(0)
            .bool_or(local.clone().greater_equal_elem(self.valid as i64));
        (local.mask_fill(elsewhere.clone(), 0), elsewhere)
    }
}

/// Computes each token's cross-entropy, `log Σ_v exp(x_v) − x_target`, without gathering the logits.
///
/// Two passes over the logits, one forward and one backward, which writes the gradient over them. The maximum over the
/// whole vocabulary is taken off before exponentials are, so none overflows. Padding columns count for nothing and get
/// a gradient of zero, also on a rank that holds nothing else. Logits of 16 bits are computed with in f32: the losses
/// are f32, and the logits' gradient comes back in their own type.
///
/// # Shapes
/// - `logits`: `[tokens, rows]`, this rank's columns of the vocabulary
/// - `targets`: `[tokens]`, the same on every rank, each below the unpadded size of the vocabulary
/// - output: `[tokens]`, the same on every rank; f32, or f64 if the logits are
///
/// # Communication
/// Forward: two all-reduces over `group`, of `tokens` and of `2 * tokens` elements. Backward: none.
///
/// # Panics
/// When the logits are not as wide as the shard, or a collective fails.
///
/// # Reference
/// Shoeybi et al. 2019, arXiv:1909.08053, section 3.
pub fn vocab_parallel_cross_entropy(
    logits: Tensor<2>,
    targets: Tensor<1, Int>,
    shard: VocabShard,
    group: &ProcessGroup,
) -> Tensor<1> {
    check_width(&logits, shard);
    let targets = targets - shard.start() as i64;
    let losses = cross_entropy(logits, targets, shard.valid(), |local| combine(local, group));
    checked(losses)
}

/// The statistics of the whole vocabulary.
fn combine(local: Statistics, group: &ProcessGroup) -> Statistics {
    if group.size() == 1 {
        return local;
    }
    let maximum = all_reduce(local.maximum.clone(), ReduceOp::Max, group);
    // 0 on a rank of padding alone, whose own maximum is −∞.
    let sum = local.sum * (local.maximum - maximum.clone()).exp();
    // [2 * tokens]: the sum of exponentials and the target's logit travel together, and are parts of one buffer then.
    let [tokens] = sum.dims();
    let whole = |buffer| BufferRange {
        buffer,
        range: 0..tokens,
    };
    let both = checked(gather_ranges(vec![sum, local.target], &[whole(0), whole(1)])).expect("there are two");
    let both = all_reduce(both, ReduceOp::Sum, group);
    let [sum, target] = [0..tokens, tokens..2 * tokens].map(|range| both.clone().slice(range));
    Statistics { maximum, sum, target }
}

pub(super) fn check_width(logits: &Tensor<2>, shard: VocabShard) {
    let columns = logits.dims()[1];
    assert_eq!(
        columns,
        shard.rows(),
        "logits of {columns} columns against a vocabulary shard of {} rows",
        shard.rows()
    );
}

/// The tensor reduced over the group, as a constant.
pub(super) fn all_reduce<const D: usize>(local: Tensor<D>, op: ReduceOp, group: &ProcessGroup) -> Tensor<D> {
    if group.size() == 1 {
        return local;
    }
    unwrap_or_unwind(run(local, TensorCall::AllReduce(op), group))
}
