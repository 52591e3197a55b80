//! Attention in burn's operations, its weights in memory.

use burn::tensor::{Bool, Device, Tensor, TensorData};

use super::projections::Projections;
use super::{AttentionMask, AttentionOptions, AttentionSizes};
use super::{Backward, BackwardInputs};
use crate::precision::{compute_type, narrow, widen, zeros, zeros_like};
use crate::random::RowDropout;
use crate::softmax::reference::later_keys;

/// Returns output and row statistics.
pub fn forward(
    inputs: Projections<Tensor<4>>,
    bias: Option<Tensor<2>>,
    options: &AttentionOptions,
) -> (Tensor<4>, Tensor<3>) {
    let sizes = inputs.sizes(Tensor::dims);
    let AttentionSizes {
        batch, queries, heads, ..
    } = sizes;
    let [query, key, value] = inputs.unpack();
    let dtype = query.dtype();
    if is_nothing(sizes) {
        let nothing = Tensor::from_data(
            TensorData::full([batch, heads, queries], f32::NEG_INFINITY),
            (&query.device(), compute_type(dtype)),
        );
        return (zeros_like(&query), nothing);
    }
    let [query, key, value] = [query, key, value].map(|tensor| by_head(tensor, heads));
    let (weights, log_sum_exp) = weights([query, key], bias, options);
    let output = match &options.dropout {
        Some(dropout) => (weights.clone() * factors(dropout, &weights)).matmul(value),
        None => weights.matmul(value),
    };
    (narrow(output.swap_dims(1, 2), dtype), log_sum_exp)
}

/// Returns the gradients of queries, keys and values for the output's, and of the bias where it is wanted.
pub fn backward(
    (inputs, bias, _, _, gradient): BackwardInputs,
    Backward {
        options,
        is_bias_wanted,
    }: &Backward,
) -> (Projections<Tensor<4>>, Option<Tensor<2>>) {
    let sizes = inputs.sizes(Tensor::dims);
    if is_nothing(sizes) {
        let of_bias = bias.filter(|_| *is_bias_wanted).as_ref().map(zeros_like);
        return (inputs.by_ref().map(zeros_like), of_bias);
    }
    let AttentionSizes { heads, kv_heads, .. } = sizes;
    let packed = inputs.packed_heads();
    let dtype = gradient.dtype();
    let [query, key, value] = inputs.unpack();
    let [query, key, value, gradient] = [query, key, value, gradient].map(|tensor| by_head(tensor, heads));
    let (weights, _) = weights([query.clone(), key.clone()], bias, options);
    let factors = options.dropout.as_ref().map(|dropout| factors(dropout, &weights));
    let mut of_weights = gradient.clone().matmul(value.swap_dims(2, 3));
    let mut kept = weights.clone();
    if let Some(factors) = factors {
        of_weights = of_weights * factors.clone();
        kept = kept * factors;
    }
    let along = (weights.clone() * of_weights.clone()).sum_dim(3);
    let of_scores = weights * (of_weights - along);
    let of_bias = is_bias_wanted.then(|| along_diagonals(of_scores.clone()));
    let of_scores = of_scores.mul_scalar(options.scale);
    let gradients = [
        by_token(of_scores.clone().matmul(key), heads),
        by_token(of_scores.swap_dims(2, 3).matmul(query), kv_heads),
        by_token(kept.swap_dims(2, 3).matmul(gradient), kv_heads),
    ]
    .map(|gradient| narrow(gradient, dtype));
    let gradients = match packed {
        None => Projections::Separate(gradients),
        Some(heads) => Projections::Packed(Tensor::cat(gradients.to_vec(), 2), heads),
    };
    (gradients, of_bias)
}

/// Returns whether no query meets a key; burn's operations do not take empty tensors everywhere.
fn is_nothing(sizes: AttentionSizes) -> bool {
    let AttentionSizes {
        batch,
        queries,
        keys,
        heads,
        kv_heads,
        d_head,
    } = sizes;
    batch * queries * keys * heads * kv_heads * d_head == 0
}

/// The weights before dropout, and `log Σ exp` of the rows of scores.
fn weights(
    [query, key]: [Tensor<4>; 2],
    bias: Option<Tensor<2>>,
    options: &AttentionOptions,
) -> (Tensor<4>, Tensor<3>) {
    let mut scores = query.matmul(key.swap_dims(2, 3)).mul_scalar(options.scale);
    let dims @ [_, _, queries, keys] = scores.dims();
    if let Some(bias) = bias {
        scores = scores + of_distances(bias, [queries, keys]);
    }
    if options.has_ranges() {
        let hidden = outside_ranges(options, dims, &scores.device()).expand(dims);
        scores = scores.mask_fill(hidden, f64::NEG_INFINITY);
    } else if options.mask == AttentionMask::Causal {
        let hidden = later_keys(queries, &scores.device()).expand(dims);
        scores = scores.mask_fill(hidden, f64::NEG_INFINITY);
    }
    let maximum = scores.clone().max_dim(3);
    let maximum = maximum.clone().mask_fill(maximum.equal_elem(f64::NEG_INFINITY), 0.0);
    let exponentials = (scores - maximum.clone()).exp();
    let sum = exponentials.clone().sum_dim(3);
    let log_sum_exp = sum.clone().log() + maximum;
    let sum = sum.clone().mask_fill(sum.equal_elem(0.0), 1.0);
    (exponentials / sum, log_sum_exp.squeeze_dim(3))
}

/// The bias of each query and key, `[1, heads, queries, keys]`, of that of each distance.
///
/// The last query's is a row's first `keys` numbers, that of the query before the ones after the first, and so on: as
/// rows one longer have them, if the numbers of all rows follow each other.
fn of_distances(bias: Tensor<2>, [queries, keys]: [usize; 2]) -> Tensor<4> {
    let [heads, distances] = bias.dims();
    let rows = bias.reshape([heads, 1, distances]).expand([heads, queries, distances]);
    let rows = rows.reshape([heads, queries * distances]);
    let end = zeros([heads, queries], &rows.device(), rows.dtype());
    let rows = Tensor::cat(vec![rows, end], 1).reshape([1, heads, queries, distances + 1]);
    rows.narrow(3, 0, keys).flip([2])
}

/// The sums over the batch of what there is for each query and key, `[batch, heads, queries, keys]`, and along the
/// diagonals: `[heads, queries + keys - 1]`.
fn along_diagonals(numbers: Tensor<4>) -> Tensor<2> {
    let [_, heads, queries, keys] = numbers.dims();
    let distances = queries + keys - 1;
    // [1, heads, queries, keys]
    let rows = numbers.sum_dim(0).flip([2]);
    let ends = zeros([1, heads, queries, queries], &rows.device(), rows.dtype());
    let rows = Tensor::cat(vec![rows, ends], 3).reshape([heads, queries * (distances + 1)]);
    let rows = rows.narrow(1, 0, queries * distances);
    rows.reshape([heads, queries, distances]).sum_dim(1).squeeze_dim(1)
}

/// Which keys a query does not see, `[batch, 1, queries, keys]`.
fn outside_ranges(
    options: &AttentionOptions,
    [batch, _, queries, keys]: [usize; 4],
    device: &Device,
) -> Tensor<4, Bool> {
    let rows = (0..batch * queries).flat_map(|row| {
        let seen = options.keys_seen(row / queries, row % queries, keys);
        (0..keys).map(move |key| !seen.contains(&key))
    });
    let data = TensorData::new(rows.collect::<Vec<_>>(), [batch, 1, queries, keys]);
    Tensor::from_data(data, device)
}

/// `[batch, seq, n, d_head]` to `[batch, heads, seq, d_head]`, shared heads repeated.
fn by_head(tensor: Tensor<4>, heads: usize) -> Tensor<4> {
    let [batch, seq, n, d_head] = tensor.dims();
    let tensor = widen(tensor).swap_dims(1, 2);
    if n == heads {
        return tensor;
    }
    tensor
        .reshape([batch, n, 1, seq, d_head])
        .expand([batch, n, heads / n, seq, d_head])
        .reshape([batch, heads, seq, d_head])
}

/// `[batch, heads, seq, d_head]` to `[batch, seq, n, d_head]`, summed over the heads that share.
fn by_token(tensor: Tensor<4>, n: usize) -> Tensor<4> {
    let [batch, heads, seq, d_head] = tensor.dims();
    let tensor = if n == heads {
        tensor
    } else {
        tensor
            .reshape([batch, n, heads / n, seq, d_head])
            .sum_dim(2)
            .squeeze_dim(2)
    };
    tensor.swap_dims(1, 2)
}

/// Returns the factor of dropout for each weight.
fn factors(dropout: &RowDropout, weights: &Tensor<4>) -> Tensor<4> {
    let dims @ [_, heads, queries, keys] = weights.dims();
    let mut factors = vec![0.0f64; dims.iter().product()];
    for (row, factors) in factors.chunks_exact_mut(keys.max(1)).enumerate() {
        let (sample, head, query) = (row / (heads * queries), row / queries % heads, row % queries);
        dropout.fill_row(factors, sample * queries + query, head, dropout.scale(), 0.0);
    }
    let data = TensorData::new(factors, dims);
    Tensor::from_data(data, (&weights.device(), weights.dtype()))
}
