//! The attention core, `dropout(softmax(Q Kᵀ / √d_head)) V`, as one operation with a backward step of its own.
//!
//! Called by [`CausalSelfAttention`](super::CausalSelfAttention). Tracked as one node, it keeps at most one number per
//! attention weight between the passes, and none where it recomputes them. Both ways run the same code, so they give
//! the same bits.
//!
//! Which weights fell to dropout is held in the weights' own sign bits: a weight that fell is `−P`. So the backward
//! step needs neither a mask nor a second tensor, and draws random numbers only where it recomputes.

mod autodiff;
mod flex;
mod portable;
mod steps;
#[cfg(test)]
mod tests;

use burn::tensor::{Tensor, TensorPrimitive, backend::Backend, ops::FloatTensor};
use burn_megatron::collectives::CollectiveBackend;
use burn_megatron::precision::assert_dtype;
use burn_megatron::random::AttentionDropout;

/// Which weights there are, before queries and keys are looked at.
#[derive(Clone, Debug)]
pub struct WeightRule {
    /// Which keys a query sees.
    pub sight: Sight,
    /// The dropout of the weights; none outside training.
    pub dropout: Option<AttentionDropout>,
}

/// Which keys a query sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// All.
    Full,
    /// Those up to its own position; there are as many keys as queries.
    Causal,
}

/// What the backward step does for the attention weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recompute {
    /// The forward pass keeps them: one number per weight.
    Nothing,
    /// The backward step computes them again from queries and keys: one more matrix product and softmax.
    Weights,
}

/// Applies attention: each query's mean of the values, weighted by the softmax of its scaled products with the keys.
///
/// # Shapes
/// - `query`: `[batch, heads, queries, d_head]`
/// - `key`: `[batch, heads, keys, d_head]`
/// - `value`: `[batch, heads, keys, d_value]`
/// - output: `[batch, heads, queries, d_value]`
///
/// # Panics
/// When the shapes do not fit each other, there are other many keys than queries under [`Sight::Causal`], or the
/// dropout's step has other tokens than the queries. When query, key and value have not one type.
///
/// # Reference
/// Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1; recomputation: Korthikanti et al. 2022, arXiv:2205.05198,
/// section 5.
pub fn attention_core<B: AttentionBackend>(
    query: Tensor<B, 4>,
    key: Tensor<B, 4>,
    value: Tensor<B, 4>,
    rule: WeightRule,
    recompute: Recompute,
) -> Tensor<B, 4> {
    let ([batch, heads, queries, d_head], [_, _, keys, d_value]) = (query.dims(), value.dims());
    assert_eq!(key.dims(), [batch, heads, keys, d_head], "attention's key");
    assert_eq!(value.dims(), [batch, heads, keys, d_value], "attention's value");
    assert_dtype("attention", "the key", key.dtype(), query.dtype());
    assert_dtype("attention", "the value", value.dtype(), query.dtype());
    if rule.sight == Sight::Causal {
        assert_eq!(queries, keys, "causal attention has as many keys as queries");
    }
    if let Some(dropout) = &rule.dropout {
        dropout.check([batch, heads, queries, keys]);
    }
    let inputs = [query, key, value].map(|tensor| tensor.into_primitive().tensor());
    Tensor::from_primitive(TensorPrimitive::Float(B::attention_core(inputs, rule, recompute)))
}

/// A backend on which [`attention_core`] runs, differentiable where the backend is.
pub trait AttentionBackend: CollectiveBackend {
    /// Applies attention to query, key and value, whose shapes have been checked.
    fn attention_core(inputs: [FloatTensor<Self>; 3], rule: WeightRule, recompute: Recompute) -> FloatTensor<Self>;
}

/// The steps of attention that go over every weight, none of them tracked. They are given f32 or f64, also where queries
/// and keys have 16 bits.
///
/// The defaults are made of burn's operations, for any backend; one with kernels of its own replaces them.
pub trait AttentionKernels: Backend {
    /// Returns the weights of scores: `softmax(scale * scores)` of what the rule lets a query see, 0 elsewhere; with a
    /// negative sign where the rule's dropout lets a weight fall, and not yet scaled for that.
    ///
    /// # Shapes
    /// - `scores`: `[batch, heads, queries, keys]`
    /// - output: as `scores`
    fn attention_weights(scores: FloatTensor<Self>, rule: &WeightRule, scale: f64) -> FloatTensor<Self> {
        portable::attention_weights::<Self>(scores, rule, scale)
    }

    /// Returns the weights that dropout kept, 0 where it did not; what is not a number stays.
    ///
    /// # Shapes
    /// - `weights`: `[batch, heads, queries, keys]`, as [`attention_weights`](Self::attention_weights) gave them
    /// - output: as `weights`
    fn kept_weights(weights: FloatTensor<Self>) -> FloatTensor<Self> {
        portable::kept_weights::<Self>(weights)
    }

    /// Returns the gradient of the scores, `scale * (K ∘ G − P ∘ rowsum(K ∘ G))`, with `P` the weights without their
    /// sign, `K` those that dropout kept and 0 where it did not, and `G` the gradient of `K`.
    ///
    /// # Shapes
    /// - `weights`: `[batch, heads, queries, keys]`, as [`attention_weights`](Self::attention_weights) gave them
    /// - `gradient`: as `weights`
    /// - output: as `weights`
    fn scores_gradient(
        weights: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        rule: &WeightRule,
        scale: f64,
    ) -> FloatTensor<Self> {
        portable::scores_gradient::<Self>(weights, gradient, rule, scale)
    }
}
