//! The softmax in burn's operations.

use burn::tensor::{Bool, Device, Int, Tensor};

use super::Forward;
use crate::precision::{narrow, widen};

/// Returns the probabilities.
pub fn forward(scores: Tensor<4>, masked: Option<Tensor<4, Bool>>, softmax: &Forward) -> Tensor<4> {
    let (dtype, dims) = (scores.dtype(), scores.dims());
    if dims.contains(&0) {
        return scores;
    }
    let mut scores = widen(scores).mul_scalar(softmax.scale);
    let masked = masked.or_else(|| softmax.is_causal.then(|| later_keys(dims[2], &scores.device())));
    if let Some(masked) = masked {
        scores = scores.mask_fill(masked.expand(dims), f64::NEG_INFINITY);
    }
    // Paged attention may be tracked.
    let maximum = scores.clone().detach().max_dim(3);
    // Without a key left, backends say −∞ or their lowest number.
    let is_infinite = maximum.clone().equal_elem(f64::NEG_INFINITY);
    let exponentials = (scores - maximum.mask_fill(is_infinite, 0.0)).exp();
    // Of a row with a key left, the sum is at least 1: that of the largest score.
    let sum = exponentials.clone().sum_dim(3);
    let is_empty = sum.clone().equal_elem(0.0);
    narrow(exponentials / sum.mask_fill(is_empty, 1.0), dtype)
}

/// Returns the scores' gradient for that of the probabilities.
pub fn backward(output: Tensor<4>, gradient: Tensor<4>, scale: f64) -> Tensor<4> {
    let dtype = output.dtype();
    if output.dims().contains(&0) {
        return output;
    }
    let [output, gradient] = [output, gradient].map(widen);
    let along = (output.clone() * gradient.clone()).sum_dim(3);
    narrow((output * (gradient - along)).mul_scalar(scale), dtype)
}

/// Returns `[1, 1, seq, seq]`: whether the key is after the query.
pub(crate) fn later_keys(seq: usize, device: &Device) -> Tensor<4, Bool> {
    let positions = Tensor::<1, Int>::arange(0..seq as i64, device);
    let queries = positions.clone().reshape([1, 1, seq, 1]).expand([1, 1, seq, seq]);
    let keys = positions.reshape([1, 1, 1, seq]).expand([1, 1, seq, seq]);
    keys.greater(queries)
}
