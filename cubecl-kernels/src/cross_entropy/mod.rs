//! Cross-entropy over a shard of the vocabulary, ready for a loss whose vocabulary is shared out over ranks.
//!
//! One pass over the logits gives each row's maximum, its sum of exponentials and the target's logit; the caller
//! combines them over the ranks, and the backward pass writes `(softmax − onehot) · gradient` over the logits in one
//! more pass. The maximum is kept separate from the sum, and never added to its logarithm: for logits around 1e4, that
//! would lose the last four digits of the loss in f32.

pub(crate) mod autodiff;
pub(crate) mod flex;
pub mod host;
#[cfg(feature = "cubecl")]
mod kernel;
#[cfg(feature = "cubecl")]
pub(crate) mod launch;
pub mod reference;

use burn::tensor::{Int, Tensor, backend::Backend};

use crate::KernelBackend;
use crate::error::{Check, KernelError};

/// What one shard, or all of them together, knows of each row, `[rows]` each, in the type that is computed in.
#[derive(Clone, Debug)]
pub struct Statistics<B: Backend> {
    /// The largest logit; −∞ where the shard has no valid column.
    pub maximum: Tensor<B, 1>,
    /// `Σ exp(x − maximum)` over the valid columns; 0 where there is none.
    pub sum: Tensor<B, 1>,
    /// The target's logit; 0 where the target is in another shard.
    pub target: Tensor<B, 1>,
}

impl<B: Backend> Statistics<B> {
    /// The losses, `[rows]`, where these are the statistics of all shards.
    pub fn losses(&self) -> Tensor<B, 1> {
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
pub fn cross_entropy<B: KernelBackend>(
    logits: Tensor<B, 2>,
    targets: Tensor<B, 1, Int>,
    valid: usize,
    combine: impl FnOnce(Statistics<B>) -> Statistics<B>,
) -> Result<Tensor<B, 1>, KernelError> {
    let check = Check("cross_entropy");
    check.float::<B>("the logits", logits.dtype(), &logits.device())?;
    let [rows, columns] = logits.dims();
    check.shape("the targets", &targets.dims(), &[rows])?;
    check.value("the number of valid columns", valid as f64, valid <= columns, || {
        format!("at most {columns}")
    })?;
    Ok(B::cross_entropy(logits, targets, valid, combine))
}
