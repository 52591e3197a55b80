//! The sum on the host in f64: what the tests compare with.

use crate::random::RowDropout;

/// Returns `residual + dropout(input + bias)` of rows of `columns` numbers.
pub fn forward(
    input: &[f64],
    bias: Option<&[f64]>,
    residual: &[f64],
    dropout: Option<&RowDropout>,
    columns: usize,
) -> Vec<f64> {
    let factors = factors(input.len(), dropout, columns);
    let sum = |(index, input): (usize, &f64)| {
        let bias = bias.map_or(0.0, |bias| bias[index % columns]);
        residual[index] + (input + bias) * factors[index]
    };
    input.iter().enumerate().map(sum).collect()
}

/// Returns the gradients of the input and of the bias for the sum's; the residual's is the sum's.
pub fn backward(gradient: &[f64], dropout: Option<&RowDropout>, columns: usize) -> [Vec<f64>; 2] {
    let factors = factors(gradient.len(), dropout, columns);
    let input: Vec<f64> = gradient.iter().zip(factors).map(|(g, factor)| g * factor).collect();
    let mut bias = vec![0.0; columns];
    for (index, gradient) in input.iter().enumerate() {
        bias[index % columns] += gradient;
    }
    [input, bias]
}

/// Returns the factors of the elements under dropout.
fn factors(count: usize, dropout: Option<&RowDropout>, columns: usize) -> Vec<f64> {
    let mut factors = vec![1.0; count];
    if let Some(dropout) = dropout {
        for (row, factors) in factors.chunks_exact_mut(columns.max(1)).enumerate() {
            dropout.fill_row(factors, row, 0, dropout.scale(), 0.0);
        }
    }
    factors
}
