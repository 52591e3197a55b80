//! Softmax of scaled and masked attention scores, forward and backward, a row at a time.

pub(crate) mod autodiff;
pub(crate) mod flex;
pub mod host;
#[cfg(feature = "cubecl")]
mod kernel;
#[cfg(feature = "cubecl")]
pub(crate) mod launch;
pub mod reference;

use burn::tensor::{Bool, Tensor, backend::Backend};

use crate::KernelBackend;
use crate::error::{Check, KernelError};

/// The longest row.
pub const MAX_KEYS: usize = 16 * 1024;

/// Which scores count for nothing.
#[derive(Clone, Debug)]
pub enum SoftmaxMask<B: Backend> {
    /// None.
    Nothing,
    /// Those of keys after the query; the numbers of keys and queries are equal.
    Causal,
    /// Those where this is true: `[batch or 1, heads or 1, queries, keys]`.
    Given(Tensor<B, 4, Bool>),
}

/// Returns `softmax(scale · scores)` over the keys that are not masked, 0 for those that are.
///
/// A row without a key left, and a row of scores that are all −∞, are 0 throughout.
///
/// # Shapes
/// - `scores`: `[batch, heads, queries, keys]`, of at most [`MAX_KEYS`] keys
/// - output: as `scores`
///
/// # Errors
/// When shapes or types do not fit, rows are too long, or the scale is not a finite number above 0.
pub fn scaled_masked_softmax<B: KernelBackend>(
    scores: Tensor<B, 4>,
    mask: SoftmaxMask<B>,
    scale: f64,
) -> Result<Tensor<B, 4>, KernelError> {
    let check = Check("scaled_masked_softmax");
    check.float::<B>("the scores", scores.dtype(), &scores.device())?;
    let dims @ [batch, heads, queries, keys] = scores.dims();
    check.value("the number of keys", keys as f64, keys <= MAX_KEYS, || {
        format!("at most {MAX_KEYS}")
    })?;
    check.value("the scale", scale, scale > 0.0 && scale.is_finite(), || {
        "finite and above 0".to_owned()
    })?;
    match &mask {
        SoftmaxMask::Nothing => (),
        SoftmaxMask::Causal => check.shape("causally masked scores", &dims, &[batch, heads, queries, queries])?,
        SoftmaxMask::Given(mask) => {
            let [mask_batch, mask_heads, ..] = mask.dims();
            let expected = [
                if mask_batch == 1 { 1 } else { batch },
                if mask_heads == 1 { 1 } else { heads },
                queries,
                keys,
            ];
            check.shape("the mask", &mask.dims(), &expected)?;
        }
    }
    Ok(B::scaled_masked_softmax(scores, mask, scale))
}
