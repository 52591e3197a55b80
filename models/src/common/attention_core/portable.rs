//! The steps over every weight by burn's operations: the defaults of [`AttentionKernels`](super::AttentionKernels).

use burn::tensor::{Shape, TensorData, TensorMetadata, backend::Backend, ops::FloatTensor};

use super::{Sight, WeightRule};

pub(super) fn attention_weights<B: Backend>(scores: FloatTensor<B>, rule: &WeightRule, scale: f64) -> FloatTensor<B> {
    let shape = scores.shape();
    let dims @ [batch, heads, queries, keys] = shape.dims();
    let mut scores = B::float_mul_scalar(scores, scale.into());
    if rule.sight == Sight::Causal {
        let hidden = (0..queries)
            .flat_map(|query| (0..keys).map(move |key| if key > query { f32::NEG_INFINITY } else { 0.0 }))
            .collect();
        // One row per head, to which burn adds the one mask faster than to many.
        let mask = tensor_like::<B>(hidden, Shape::new([1, queries * keys]), &scores);
        scores = B::float_reshape(scores, Shape::new([batch * heads, queries * keys]));
        scores = B::float_reshape(B::float_add(scores, mask), shape.clone());
    }
    let weights = B::softmax(scores, 3);
    match &rule.dropout {
        None => weights,
        Some(dropout) => {
            let mut signs = vec![0.0; shape.num_elements()];
            for (row, signs) in signs.chunks_exact_mut(keys).enumerate() {
                dropout.fill_signs(signs, row, dims);
            }
            let signs = tensor_like::<B>(signs, shape, &weights);
            B::float_mul(weights, signs)
        }
    }
}

/// burn's `relu` would make 0 of what is not a number.
pub(super) fn kept_weights<B: Backend>(weights: FloatTensor<B>) -> FloatTensor<B> {
    let device = B::float_device(&weights);
    let bool_dtype = burn::tensor::get_device_settings::<B>(&device).bool_dtype;
    let fallen = B::float_lower_elem(weights.clone(), 0.0.into(), bool_dtype);
    B::float_mask_fill(weights, fallen, 0.0.into())
}

pub(super) fn scores_gradient<B: Backend>(
    weights: FloatTensor<B>,
    gradient: FloatTensor<B>,
    rule: &WeightRule,
    scale: f64,
) -> FloatTensor<B> {
    let (kept, all) = match rule.dropout {
        None => (weights.clone(), weights),
        Some(_) => (kept_weights::<B>(weights.clone()), B::float_abs(weights)),
    };
    let gradient = B::float_mul(gradient, kept);
    let row_sums = B::float_sum_dim(gradient.clone(), 3);
    let gradient = B::float_sub(gradient, B::float_mul(all, row_sums));
    B::float_mul_scalar(gradient, scale.into())
}

fn tensor_like<B: Backend>(values: Vec<f32>, shape: Shape, like: &FloatTensor<B>) -> FloatTensor<B> {
    let data = TensorData::new(values, shape).convert_dtype(like.dtype());
    B::float_from_data(data, &B::float_device(like))
}
