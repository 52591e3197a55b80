//! `Heads`: what this rank's heads of burn's attention do between the projections.

use burn::module::Module;
use burn::tensor::activation::{quiet_softmax, softmax};
use burn::tensor::{Bool, DType, Tensor};
use cubecl_kernels::flash_attention::{AttentionMask, AttentionOptions, MAX_HEAD, flash_attention};

use crate::precision::{is_half, narrow, widen};
use crate::random::{Dropout, StepCoordinates};
use crate::tensor_parallel::checked;

/// Which keys do not count, as burn's attention takes them: `true` hides, and a dimension of 1 is broadcast.
#[derive(Clone, Debug)]
pub(in crate::tensor_parallel) struct AttentionMasks {
    /// `[batch, keys]`: padding.
    pub pad: Option<Tensor<2, Bool>>,
    /// `[batch, queries, keys]`.
    pub attn: Option<Tensor<3, Bool>>,
}

impl AttentionMasks {
    /// Returns masks that hide nothing.
    pub fn none() -> Self {
        Self { pad: None, attn: None }
    }

    fn hide_nothing(&self) -> bool {
        self.pad.is_none() && self.attn.is_none()
    }
}

/// The settings of burn's attention, and which of its heads are here.
#[derive(Module, Debug)]
pub(super) struct Heads {
    /// The number of heads here.
    pub n_heads: usize,
    /// The number of the first of them in the model.
    pub first_head: usize,
    /// The size of a head.
    pub d_k: usize,
    /// What hidden scores become.
    pub min_float: f64,
    /// Whether a query may attend to nothing.
    pub quiet_softmax: bool,
    /// Of the scores, before they are masked: burn's place for it.
    pub dropout: Dropout,
    /// Whether the kernel gives the same bits for the same inputs.
    pub is_deterministic: bool,
}

impl Heads {
    /// `[batch * seq, heads * d_k]` to `[batch, seq, heads, d_k]`.
    pub fn by_token(&self, projected: Tensor<2>, batch: usize) -> Tensor<4> {
        let [tokens, _] = projected.dims();
        projected.reshape([batch, tokens / batch.max(1), self.n_heads, self.d_k])
    }

    /// Applies attention by a kernel that never holds the weights, where it can: without masks, dropout and quiet
    /// softmax, and not in f64. Otherwise by burn's operations.
    ///
    /// # Shapes
    /// - `query`, `key`, `value`: `[batch, seq, heads, d_k]`
    /// - output: `[batch, queries, heads, d_k]`
    ///
    /// # Panics
    /// As [`weights`](Self::weights).
    pub fn attend(
        &self,
        [query, key, value]: [Tensor<4>; 3],
        masks: &AttentionMasks,
        step: Option<&StepCoordinates>,
    ) -> Tensor<4> {
        let drops = self.dropout.is_active(&query.device());
        let is_plain = masks.hide_nothing() && !drops && !self.quiet_softmax;
        // In f64 burn's own operations, of which every bit counts: its scale is one of f32, and so is its gradient's.
        let is_kernels = query.dtype() != DType::F64 && self.d_k <= MAX_HEAD;
        if is_plain && is_kernels {
            let options = AttentionOptions {
                mask: AttentionMask::Full,
                scale: 1.0 / (self.d_k as f64).sqrt(),
                dropout: None,
                documents: None,
                key_lengths: None,
                is_deterministic: self.is_deterministic,
            };
            return checked(flash_attention(query, key, value, options));
        }
        let [query, key, value] = [query, key, value].map(|tensor| tensor.swap_dims(1, 2));
        let weights = self.weights(query, key, masks, step);
        average(weights, value).swap_dims(1, 2)
    }

    /// Returns the attention weights.
    ///
    /// # Shapes
    /// - `query`, `key`: `[batch, heads, seq, d_k]`
    /// - output: `[batch, heads, queries, keys]`
    ///
    /// # Panics
    /// When a mask cannot be broadcast to its shape.
    pub fn weights(
        &self,
        query: Tensor<4>,
        key: Tensor<4>,
        masks: &AttentionMasks,
        step: Option<&StepCoordinates>,
    ) -> Tensor<4> {
        let dtype = query.dtype();
        // As burn divides: by a number of f32.
        let scores = widen(query)
            .matmul(widen(key).transpose())
            .div_scalar((self.d_k as f32).sqrt());
        let mut scores = match step {
            Some(step) => self.dropout.forward_attention(scores, step, self.first_head),
            None => scores,
        };
        let [batch, _, queries, keys] = scores.dims();
        // By their own sizes, as burn does: what is broadcast stays so.
        if let Some(pad) = &masks.pad {
            check_mask("mask_pad", pad.dims(), "[batch, keys]", [batch, keys]);
            let [batch, keys] = pad.dims();
            scores = scores.mask_fill(pad.clone().reshape([batch, 1, 1, keys]), self.min_float);
        }
        if let Some(attn) = &masks.attn {
            let whole = [batch, queries, keys];
            check_mask("mask_attn", attn.dims(), "[batch, queries, keys]", whole);
            let [batch, queries, keys] = attn.dims();
            scores = scores.mask_fill(attn.clone().reshape([batch, 1, queries, keys]), self.min_float);
        }
        let weights = if self.quiet_softmax {
            quiet_softmax(scores, 3)
        } else {
            softmax(scores, 3)
        };
        narrow(weights, dtype)
    }
}

/// Checks that a mask can be broadcast to the sizes of the attention.
///
/// # Panics
/// When it cannot.
fn check_mask<const D: usize>(name: &str, shape: [usize; D], axes: &str, whole: [usize; D]) {
    let fits = shape.iter().zip(&whole).all(|(&size, &full)| size == 1 || size == full);
    assert!(
        fits,
        "{name} of shape {shape:?} does not fit the attention's {axes} = {whole:?}: each size must be the same, or 1"
    );
}

/// The values averaged by the weights: `[batch, heads, queries, d_k]`.
pub(super) fn average(weights: Tensor<4>, value: Tensor<4>) -> Tensor<4> {
    let dtype = value.dtype();
    if is_half(dtype) {
        narrow(widen(weights).matmul(widen(value)), dtype)
    } else {
        weights.matmul(value)
    }
}
