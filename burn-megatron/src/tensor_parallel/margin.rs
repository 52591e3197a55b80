//! How far a token is from the most probable one, over a vocabulary that is shared out over the tensor-parallel group.

use burn::tensor::{Int, Tensor};

use super::VocabShard;
use super::cross_entropy::{all_reduce, check_width};
use crate::collectives::{ProcessGroup, ReduceOp};
use crate::precision::widen;

/// Computes how far each target's logit is below the highest one, `max_v x_v − x_target`, without gathering the logits:
/// exactly 0 where the target is the most probable token, or one of several that are equally probable.
///
/// Without a backward pass: it is for evaluation, next to [`vocab_parallel_cross_entropy`].
///
/// # Shapes
/// - `logits`: `[tokens, rows]`, this rank's columns of the vocabulary
/// - `targets`: `[tokens]`, the same on every rank, each below the unpadded size of the vocabulary
/// - output: `[tokens]`, the same on every rank; f32, or f64 if the logits are
///
/// # Communication
/// One all-reduce over `group`, of `2 * tokens` elements.
///
/// # Panics
/// When the logits are not as wide as the shard, or a collective fails.
///
/// [`vocab_parallel_cross_entropy`]: super::vocab_parallel_cross_entropy
pub fn vocab_parallel_margin(
    logits: Tensor<2>,
    targets: Tensor<1, Int>,
    shard: VocabShard,
    group: &ProcessGroup,
) -> Tensor<1> {
    check_width(&logits, shard);
    let [tokens, _] = logits.dims();
    let (local, elsewhere) = shard.localize(targets);
    let target = logits.clone().gather(1, local.unsqueeze_dim::<2>(1)).squeeze_dim(1);
    // What another rank has, or is padding, is below everything.
    let target = target.mask_fill(elsewhere, f64::NEG_INFINITY);
    let highest = match shard.valid() {
        0 => target.clone(),
        valid => logits.narrow(1, 0, valid).max_dim(1).squeeze_dim(1),
    };
    // [2 * tokens]: both are the largest over the ranks, so they travel together.
    let both = all_reduce(widen(Tensor::cat(vec![highest, target], 0)), ReduceOp::Max, group);
    both.clone().narrow(0, 0, tokens) - both.narrow(0, tokens, tokens)
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    #[test]
    fn the_margin_is_zero_at_the_highest_logit_and_padding_counts_for_nothing() {
        let group = ProcessGroup::single();
        // Three tokens, and a column of padding whose logit is the highest.
        let logits = [[1.0, 3.0, 2.0, 9.0], [5.0, 5.0, -1.0, 9.0]];
        let margins = |targets: [i32; 2]| {
            let logits = Tensor::<2>::from_floats(logits, &Device::flex());
            let targets = Tensor::<1, Int>::from_ints(targets, &Device::flex());
            let margins = vocab_parallel_margin(logits, targets, VocabShard::new(3, 4, &group), &group);
            margins.into_data().iter::<f32>().collect::<Vec<_>>()
        };
        assert_eq!(margins([1, 0]), [0.0, 0.0]);
        assert_eq!(margins([2, 1]), [1.0, 0.0]);
        assert_eq!(margins([0, 2]), [2.0, 6.0]);
    }
}
