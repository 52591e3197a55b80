//! The sum in burn's operations.

use burn::tensor::{Tensor, TensorData};

use crate::precision::{narrow, widen, zeros};
use crate::random::RowDropout;

/// Returns the sum.
pub fn forward(
    input: Tensor<2>,
    bias: Option<Tensor<1>>,
    residual: Tensor<2>,
    dropout: Option<&RowDropout>,
) -> Tensor<2> {
    let dtype = input.dtype();
    if input.dims().contains(&0) {
        return input;
    }
    let mut sum = widen(input);
    if let Some(bias) = bias {
        sum = sum + widen(bias).unsqueeze::<2>();
    }
    if let Some(dropout) = dropout {
        sum = apply(sum, dropout);
    }
    narrow(sum + widen(residual), dtype)
}

/// Returns the input's gradient for the sum's, and the bias' if there is one.
pub fn backward(gradient: Tensor<2>, has_bias: bool, dropout: Option<&RowDropout>) -> (Tensor<2>, Option<Tensor<1>>) {
    let dtype = gradient.dtype();
    let [rows, columns] = gradient.dims();
    if rows == 0 || columns == 0 {
        let bias = has_bias.then(|| zeros([columns], &gradient.device(), dtype));
        return (gradient, bias);
    }
    let mut input = widen(gradient);
    if let Some(dropout) = dropout {
        input = apply(input, dropout);
    }
    let bias = has_bias.then(|| narrow(input.clone().sum_dim(0).squeeze_dim::<1>(0), dtype));
    (narrow(input, dtype), bias)
}

/// Drops elements of the rows, and scales the others.
fn apply(input: Tensor<2>, dropout: &RowDropout) -> Tensor<2> {
    let [rows, columns] = input.dims();
    let mut factors = vec![0.0f64; rows * columns];
    for (row, factors) in factors.chunks_exact_mut(columns.max(1)).enumerate() {
        dropout.fill_row(factors, row, 0, dropout.scale(), 0.0);
    }
    let data = TensorData::new(factors, [rows, columns]);
    let factors = Tensor::from_data(data, (&input.device(), input.dtype()));
    input * factors
}
