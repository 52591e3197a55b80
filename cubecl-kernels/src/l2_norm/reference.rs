//! Sums of squares in burn's operations.

use burn::tensor::Tensor;

use super::SquaredPart;
use crate::precision::{compute_type, widen, zeros};

/// Returns the sums over parts of buffers, of which there is one at least.
pub fn sums_of_squares(buffers: Vec<Tensor<1>>, parts: &[SquaredPart], sums: usize) -> Tensor<1> {
    let (device, dtype) = (buffers[0].device(), compute_type(buffers[0].dtype()));
    let squares = |part: &SquaredPart| {
        let buffer = widen(buffers[part.buffer].clone().slice(part.range.clone()));
        (buffer.clone() * buffer).sum()
    };
    let sum = |number| {
        let own = parts.iter().filter(|part| part.sum == number && !part.range.is_empty());
        let total = own.map(squares).reduce(|a, b| a + b);
        total.unwrap_or_else(|| zeros([1], &device, dtype))
    };
    match sums {
        0 => zeros([0], &device, dtype),
        _ => Tensor::cat((0..sums).map(sum).collect(), 0),
    }
}
