//! Softmax of scaled and masked attention scores, forward and backward, a row at a time.

mod flex;
pub mod host;
#[cfg(feature = "cubecl")]
mod kernel;
#[cfg(feature = "cubecl")]
mod launch;
pub(crate) mod reference;

use burn::tensor::{Bool, Tensor};
#[cfg(feature = "cubecl")]
use burn_cubecl::tensor::CubeTensor;
use burn_flex::FlexTensor;

use crate::error::{Check, KernelError};
use crate::operation::parts::{Names, PartRule};
use crate::operation::{Operation, Spec, apply};
use crate::tape::{inner, keep, record};

/// The longest row.
pub const MAX_KEYS: usize = 16 * 1024;

/// Scores that count for nothing.
#[derive(Clone, Debug)]
pub enum SoftmaxMask {
    /// None.
    Nothing,
    /// Scores of keys after the query; the numbers of keys and queries are equal.
    Causal,
    /// Scores where this is true: `[batch or 1, heads or 1, queries, keys]`.
    Given(Tensor<4, Bool>),
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
pub fn scaled_masked_softmax(scores: Tensor<4>, mask: SoftmaxMask, scale: f64) -> Result<Tensor<4>, KernelError> {
    let check = Check("scaled_masked_softmax");
    check.float("the scores", scores.dtype(), &scores.device())?;
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
    let is_causal = matches!(mask, SoftmaxMask::Causal);
    let masked = match mask {
        SoftmaxMask::Given(mask) => Some(inner(&mask)),
        SoftmaxMask::Nothing | SoftmaxMask::Causal => None,
    };
    let output = apply(&Forward { is_causal, scale }, (inner(&scores), masked));
    let kept = keep(output.clone());
    Ok(record(scores, output, move |gradient, _| {
        Some(apply(&Backward { scale }, [kept.get(), gradient]))
    }))
}

/// Scores, and where they count for nothing, to probabilities.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forward {
    /// Scores of keys after the query count for nothing.
    pub is_causal: bool,
    pub scale: f64,
}

impl Operation for Forward {
    type Inputs = (Tensor<4>, Option<Tensor<4, Bool>>);
    type Outputs = Tensor<4>;

    const NAME: &'static str = "scaled_masked_softmax";

    fn outputs(&self, (scores, _): (Spec, Option<Spec>)) -> Spec {
        scores
    }

    fn part_rule(&self, (_, masked): (Spec, Option<Spec>)) -> Option<PartRule> {
        // A causal mask is for all queries.
        let scores = if self.is_causal { "bh.." } else { "bhq." };
        Names::of::<Self>((scores, masked.map(|_| "bhq.")), scores).rule()
    }

    fn reference(&self, (scores, masked): Self::Inputs) -> Tensor<4> {
        reference::forward(scores, masked, self)
    }

    fn flex(&self, (scores, masked): (FlexTensor, Option<FlexTensor>)) -> FlexTensor {
        flex::forward(scores, masked, self)
    }

    #[cfg(feature = "cubecl")]
    fn cube(&self, (scores, masked): (CubeTensor, Option<CubeTensor>)) -> CubeTensor {
        launch::forward(scores, masked, self)
    }
}

/// Probabilities and their gradient to the scores'.
#[derive(Clone, Copy, Debug)]
struct Backward {
    scale: f64,
}

impl Operation for Backward {
    type Inputs = [Tensor<4>; 2];
    type Outputs = Tensor<4>;

    const NAME: &'static str = "scaled_masked_softmax_backward";

    fn outputs(&self, [output, _]: [Spec; 2]) -> Spec {
        output
    }

    fn part_rule(&self, _inputs: [Spec; 2]) -> Option<PartRule> {
        Names::of::<Self>(["bhq."; 2], "bhq.").linear_in_last().rule()
    }

    fn reference(&self, [output, gradient]: [Tensor<4>; 2]) -> Tensor<4> {
        reference::backward(output, gradient, self.scale)
    }

    fn flex(&self, [output, gradient]: [FlexTensor; 2]) -> FlexTensor {
        flex::backward(output, gradient, self.scale)
    }

    #[cfg(feature = "cubecl")]
    fn cube(&self, [output, gradient]: [CubeTensor; 2]) -> CubeTensor {
        launch::backward(output, gradient, self.scale)
    }
}
