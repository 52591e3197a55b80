//! The core for burn's CPU backend, with the steps over every weight row by row and in place.
//!
//! A row is scaled, cut to what its query sees, normalised and given the signs of dropout while it is in the cache, and
//! what the query does not see costs nothing. burn's operations would each go over all weights, on one thread.

use burn::tensor::{DType, Element, TensorMetadata, ops::FloatTensor};
use burn_flex::{Flex, FlexTensor};
use num_traits::Float;
use rayon::prelude::*;

use super::{AttentionBackend, AttentionKernels, Recompute, Sight, WeightRule, portable, steps};

/// Weights per task: enough to outweigh the hand-over to another thread, few enough for the cache.
const WEIGHTS_PER_TASK: usize = 16 * 1024;

/// Sums that run beside each other, so that the processor can add them at once.
const LANES: usize = 16;

impl AttentionBackend for Flex {
    fn attention_core([query, key, value]: [FlexTensor; 3], rule: WeightRule, _recompute: Recompute) -> FlexTensor {
        steps::output::<Flex>(steps::weights::<Flex>(query, key, &rule), value, &rule)
    }
}

impl AttentionKernels for Flex {
    fn attention_weights(scores: FloatTensor<Self>, rule: &WeightRule, scale: f64) -> FloatTensor<Self> {
        match scores.dtype() {
            DType::F32 => weights_in_place::<f32>(scores, rule, scale),
            DType::F64 => weights_in_place::<f64>(scores, rule, scale),
            _ => portable::attention_weights::<Self>(scores, rule, scale),
        }
    }

    fn kept_weights(weights: FloatTensor<Self>) -> FloatTensor<Self> {
        match weights.dtype() {
            DType::F32 => kept_in_place::<f32>(weights),
            DType::F64 => kept_in_place::<f64>(weights),
            _ => portable::kept_weights::<Self>(weights),
        }
    }

    fn scores_gradient(
        weights: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        rule: &WeightRule,
        scale: f64,
    ) -> FloatTensor<Self> {
        match weights.dtype() {
            DType::F32 => scores_gradient_in_place::<f32>(&weights, gradient, rule, scale),
            DType::F64 => scores_gradient_in_place::<f64>(&weights, gradient, rule, scale),
            _ => portable::scores_gradient::<Self>(weights, gradient, rule, scale),
        }
    }
}

/// An element that the kernels compute with.
trait Real: Float + Element + bytemuck::Pod + Send + Sync {
    fn from_f64(value: f64) -> Self;
}

impl Real for f32 {
    fn from_f64(value: f64) -> Self {
        value as f32
    }
}

impl Real for f64 {
    fn from_f64(value: f64) -> Self {
        value
    }
}

fn weights_in_place<T: Real>(scores: FlexTensor, rule: &WeightRule, scale: f64) -> FlexTensor {
    let mut scores = contiguous(scores);
    let dims @ [_, _, queries, keys] = scores.shape().dims();
    let scale = T::from_f64(scale);
    let weights_of_row = |signs: &mut Vec<f32>, index: usize, row: &mut [T]| {
        let (seen, unseen) = row.split_at_mut(seen_keys(rule, index % queries, keys));
        softmax(seen, scale);
        unseen.fill(T::zero());
        if let Some(dropout) = &rule.dropout {
            signs.resize(seen.len(), 0.0);
            dropout.fill_signs(signs, index, dims);
            for (weight, sign) in seen.iter_mut().zip(signs) {
                *weight = *weight * T::from_f64(f64::from(*sign));
            }
        }
    };
    let rows_per_task = rows_per_task(keys);
    scores
        .storage_mut::<T>()
        .par_chunks_mut(rows_per_task * keys.max(1))
        .enumerate()
        .for_each_init(Vec::new, |signs, (task, rows)| {
            for (offset, row) in rows.chunks_exact_mut(keys.max(1)).enumerate() {
                weights_of_row(signs, task * rows_per_task + offset, row);
            }
        });
    scores
}

fn kept_in_place<T: Real>(weights: FlexTensor) -> FlexTensor {
    let mut weights = contiguous(weights);
    weights
        .storage_mut::<T>()
        .par_chunks_mut(WEIGHTS_PER_TASK)
        .for_each(|task| {
            for weight in task {
                // Not a maximum: that would make 0 of what is not a number.
                *weight = if *weight < T::zero() { T::zero() } else { *weight };
            }
        });
    weights
}

fn scores_gradient_in_place<T: Real>(
    weights: &FlexTensor,
    gradient: FlexTensor,
    rule: &WeightRule,
    scale: f64,
) -> FlexTensor {
    let weights = weights.to_contiguous();
    let mut gradient = contiguous(gradient);
    let [_, _, queries, keys] = gradient.shape().dims();
    let scale = T::from_f64(scale);
    let gradient_of_row = |index: usize, weights: &[T], row: &mut [T]| {
        let (seen, unseen) = row.split_at_mut(seen_keys(rule, index % queries, keys));
        let weights = &weights[..seen.len()];
        match rule.dropout {
            None => softmax_gradient(weights, seen, scale),
            Some(_) => dropout_gradient(weights, seen, scale),
        }
        unseen.fill(T::zero());
    };
    let rows_per_task = rows_per_task(keys);
    let chunk = rows_per_task * keys.max(1);
    gradient
        .storage_mut::<T>()
        .par_chunks_mut(chunk)
        .zip(weights.storage::<T>().par_chunks(chunk))
        .enumerate()
        .for_each(|(task, (rows, weights))| {
            let rows = rows
                .chunks_exact_mut(keys.max(1))
                .zip(weights.chunks_exact(keys.max(1)));
            for (offset, (row, weights)) in rows.enumerate() {
                gradient_of_row(task * rows_per_task + offset, weights, row);
            }
        });
    gradient
}

/// Returns the tensor without gaps. Where it has none, it stays the only owner of its data, to be written in place.
fn contiguous(tensor: FlexTensor) -> FlexTensor {
    tensor.to_contiguous()
}

fn rows_per_task(keys: usize) -> usize {
    (WEIGHTS_PER_TASK / keys.max(1)).max(1)
}

fn seen_keys(rule: &WeightRule, query: usize, keys: usize) -> usize {
    match rule.sight {
        Sight::Full => keys,
        Sight::Causal => query + 1,
    }
}

/// `softmax(scale * row)`, the scale positive, shifted by the maximum so that no exponential overflows.
fn softmax<T: Real>(row: &mut [T], scale: T) {
    let larger = |a: T, b: T| if b > a { b } else { a };
    let max = fold(row.iter().copied(), T::neg_infinity(), larger);
    for value in &mut *row {
        *value = (scale * (*value - max)).exp();
    }
    let factor = T::one() / fold(row.iter().copied(), T::zero(), |a, b| a + b);
    for value in row {
        *value = *value * factor;
    }
}

/// `row = scale * weights ∘ (row − rowsum(weights ∘ row))`.
fn softmax_gradient<T: Real>(weights: &[T], row: &mut [T], scale: T) {
    let sum = fold(weights.iter().zip(&*row).map(|(&w, &g)| w * g), T::zero(), |a, b| a + b);
    for (value, &weight) in row.iter_mut().zip(weights) {
        *value = scale * weight * (*value - sum);
    }
}

/// As [`softmax_gradient`], with no gradient to the weights whose sign is negative.
fn dropout_gradient<T: Real>(weights: &[T], row: &mut [T], scale: T) {
    for (value, &weight) in row.iter_mut().zip(weights) {
        if weight <= T::zero() {
            *value = T::zero();
        }
    }
    let sum = fold(weights.iter().zip(&*row).map(|(&w, &g)| w * g), T::zero(), |a, b| a + b);
    for (value, &weight) in row.iter_mut().zip(weights) {
        *value = scale * weight.abs() * (*value - sum);
    }
}

/// Folds values in [`LANES`] lanes and then the lanes, always in the same order.
fn fold<T: Real>(mut values: impl ExactSizeIterator<Item = T>, start: T, join: impl Fn(T, T) -> T) -> T {
    let mut lanes = [start; LANES];
    while values.len() >= LANES {
        for (lane, value) in lanes.iter_mut().zip(&mut values) {
            *lane = join(*lane, value);
        }
    }
    for (lane, value) in lanes.iter_mut().zip(values) {
        *lane = join(*lane, value);
    }
    lanes.into_iter().fold(start, join)
}
