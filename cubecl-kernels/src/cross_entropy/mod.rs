//! Cross-entropy over a shard of the vocabulary, ready for a loss whose vocabulary is shared out over ranks.
//!
//! One pass over the logits gives each row's maximum, its sum of exponentials and the target's logit; the caller
//! combines them over the ranks ([`LossTerms`]), and the backward pass writes `(softmax − onehot) · gradient` over the
//! logits in one more pass.

pub(crate) mod autodiff;
pub mod host;
pub mod reference;

use burn::tensor::{Int, Tensor, backend::Backend};

use crate::KernelBackend;
use crate::error::{Check, KernelError};

/// What one shard knows of each row, `[rows]` each, in the type that is computed in.
#[derive(Clone, Debug)]
pub struct ShardStatistics<B: Backend> {
    /// The largest logit; −∞ where the shard has no valid column.
    pub maximum: Tensor<B, 1>,
    /// `Σ exp(x − maximum)` over the valid columns; 0 where there is none.
    pub sum: Tensor<B, 1>,
    /// The target's logit; 0 where the target lies in another shard.
    pub target: Tensor<B, 1>,
}

/// What the whole vocabulary gives for each row, `[rows]` each; the loss is `log_sum_exp − target`.
#[derive(Clone, Debug)]
pub struct LossTerms<B: Backend> {
    /// `log Σ exp(x)` over all shards.
    pub log_sum_exp: Tensor<B, 1>,
    /// The target's logit.
    pub target: Tensor<B, 1>,
}

impl<B: Backend> ShardStatistics<B> {
    /// The terms of a vocabulary that is this shard alone.
    pub fn terms(self) -> LossTerms<B> {
        LossTerms {
            log_sum_exp: self.sum.log() + self.maximum,
            target: self.target,
        }
    }
}

/// Computes each row's cross-entropy, `log Σ_v exp(x_v) − x_target`.
///
/// `combine` makes one rank's statistics those of all ranks; it is not differentiated, and the backward pass needs
/// nothing from other ranks. [`ShardStatistics::terms`] is that of a single rank.
///
/// # Shapes
/// - `logits`: `[rows, columns]`; the columns from `valid` on are padding, count for nothing and get a gradient of zero
/// - `targets`: `[rows]`, the columns of the targets; those outside `0..valid` lie in other shards
/// - output: `[rows]`; f32, or f64 if the logits are
///
/// # Errors
/// When the shapes do not fit, `valid` is more than the columns, or the type is not computed with.
///
/// # Reference
/// Shoeybi et al. 2019, arXiv:1909.08053, section 3.
pub fn cross_entropy<B: KernelBackend>(
    logits: Tensor<B, 2>,
    targets: Tensor<B, 1, Int>,
    valid: usize,
    combine: impl FnOnce(ShardStatistics<B>) -> LossTerms<B>,
) -> Result<Tensor<B, 1>, KernelError> {
    let check = Check("cross_entropy");
    check.float("the logits", logits.dtype())?;
    let [rows, columns] = logits.dims();
    check.shape("the targets", &targets.dims(), &[rows])?;
    check.value("the number of valid columns", valid as f64, valid <= columns, || {
        format!("at most {columns}")
    })?;
    Ok(B::cross_entropy(logits, targets, valid, combine))
}
