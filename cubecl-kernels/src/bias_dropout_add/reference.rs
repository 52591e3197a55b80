//! The sum in burn's operations.

use burn::tensor::{Tensor, TensorData, backend::Backend};

use super::{AddRule, AddendGradients, Addends};
use crate::precision::{narrow, widen, zeros};
use crate::random::RowDropout;

/// Returns the sum.
pub fn forward<B: Backend>(addends: Addends<B>) -> Tensor<B, 2> {
    let Addends {
        input,
        bias,
        residual,
        dropout,
    } = addends;
    let dtype = input.dtype();
    if input.dims().contains(&0) {
        return input;
    }
    let mut sum = widen(input);
    if let Some(bias) = bias {
        sum = sum + widen(bias).unsqueeze::<2>();
    }
    if let Some(dropout) = dropout {
        sum = apply(sum, &dropout);
    }
    narrow(sum + widen(residual), dtype)
}

/// Returns the addends' gradients for the sum's.
pub fn backward<B: Backend>(gradient: Tensor<B, 2>, rule: &AddRule) -> AddendGradients<B> {
    let dtype = gradient.dtype();
    let [rows, columns] = gradient.dims();
    if rows == 0 || columns == 0 {
        return AddendGradients {
            bias: rule.has_bias.then(|| zeros([columns], &gradient.device(), dtype)),
            input: gradient.clone(),
            residual: gradient,
        };
    }
    let input = match &rule.dropout {
        Some(dropout) => apply(widen(gradient.clone()), dropout),
        None => widen(gradient.clone()),
    };
    let bias = rule
        .has_bias
        .then(|| narrow(input.clone().sum_dim(0).squeeze_dim::<1>(0), dtype));
    AddendGradients {
        input: narrow(input, dtype),
        bias,
        residual: gradient,
    }
}

/// Drops elements of the rows, and scales the others.
pub(crate) fn apply<B: Backend>(input: Tensor<B, 2>, dropout: &RowDropout) -> Tensor<B, 2> {
    let [rows, columns] = input.dims();
    let mut factors = vec![0.0f64; rows * columns];
    for (row, factors) in factors.chunks_exact_mut(columns.max(1)).enumerate() {
        dropout.fill_row(factors, row, 0, dropout.scale(), 0.0);
    }
    let data = TensorData::new(factors, [rows, columns]);
    let factors = Tensor::from_data(data, (&input.device(), input.dtype()));
    input * factors
}
