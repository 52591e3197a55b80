//! The core's forward and backward pass on a backend without autodiff. Called by the backends' `attention_core`.
//!
//! Numbers of 16 bits are widened for every step: scores, sums over keys and queries, and dropout's scale are f32, and
//! the scores of f16 cannot overflow before they are scaled. What is kept and what comes out has 16 bits again.

use burn::tensor::{DType, TensorMetadata, backend::Backend, ops::FloatTensor};
use burn_megatron::precision::is_half;

use super::{AttentionKernels, WeightRule};

/// Returns the weights, with the signs of dropout.
pub(super) fn weights<B: AttentionKernels>(
    query: FloatTensor<B>,
    key: FloatTensor<B>,
    rule: &WeightRule,
) -> FloatTensor<B> {
    let (dtype, scale) = (query.dtype(), score_scale::<B>(&query));
    let [query, key] = [query, key].map(widen::<B>);
    let scores = B::float_matmul(query, B::float_swap_dims(key, 2, 3));
    narrow::<B>(B::attention_weights(scores, rule, scale), dtype)
}

/// Returns the output of given weights.
pub(super) fn output<B: AttentionKernels>(
    weights: FloatTensor<B>,
    value: FloatTensor<B>,
    rule: &WeightRule,
) -> FloatTensor<B> {
    let dtype = value.dtype();
    let [weights, value] = [weights, value].map(widen::<B>);
    let output = match &rule.dropout {
        None => B::float_matmul(weights, value),
        // The output is smaller than the weights, so dropout's scale waits for it.
        Some(dropout) => B::float_mul_scalar(B::float_matmul(B::kept_weights(weights), value), dropout.scale().into()),
    };
    narrow::<B>(output, dtype)
}

/// Returns the gradients of query, key and value that are wanted.
pub(super) fn gradients<B: AttentionKernels>(
    inputs: [FloatTensor<B>; 3],
    weights: FloatTensor<B>,
    gradient: FloatTensor<B>,
    rule: &WeightRule,
    [wants_query, wants_key, wants_value]: [bool; 3],
) -> [Option<FloatTensor<B>>; 3] {
    let dtype = weights.dtype();
    let [query, key, value] = inputs.map(widen::<B>);
    let [weights, gradient] = [weights, gradient].map(widen::<B>);
    let gradient = match &rule.dropout {
        None => gradient,
        Some(dropout) => B::float_mul_scalar(gradient, dropout.scale().into()),
    };
    let scores_gradient = (wants_query || wants_key).then(|| {
        let weights_gradient = B::float_matmul(gradient.clone(), B::float_swap_dims(value, 2, 3));
        B::scores_gradient(weights.clone(), weights_gradient, rule, score_scale::<B>(&query))
    });
    let value_gradient = wants_value.then(|| {
        let kept = match rule.dropout {
            None => weights,
            Some(_) => B::kept_weights(weights),
        };
        B::float_matmul(B::float_swap_dims(kept, 2, 3), gradient)
    });
    let query_gradient = scores_gradient
        .clone()
        .filter(|_| wants_query)
        .map(|scores| B::float_matmul(scores, key));
    let key_gradient = scores_gradient
        .filter(|_| wants_key)
        .map(|scores| B::float_matmul(B::float_swap_dims(scores, 2, 3), query));
    [query_gradient, key_gradient, value_gradient].map(|gradient| gradient.map(|g| narrow::<B>(g, dtype)))
}

/// The tensor in f32 if it has 16 bits.
fn widen<B: Backend>(tensor: FloatTensor<B>) -> FloatTensor<B> {
    match is_half(tensor.dtype()) {
        true => B::float_cast(tensor, DType::F32.into()),
        false => tensor,
    }
}

fn narrow<B: Backend>(tensor: FloatTensor<B>, dtype: DType) -> FloatTensor<B> {
    match tensor.dtype() == dtype {
        true => tensor,
        false => B::float_cast(tensor, dtype.into()),
    }
}

fn score_scale<B: AttentionKernels>(query: &FloatTensor<B>) -> f64 {
    1.0 / (query.shape()[3] as f64).sqrt()
}
