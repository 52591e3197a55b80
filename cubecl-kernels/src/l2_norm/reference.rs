//! The sum of squares in burn's operations.

use burn::tensor::{Tensor, backend::Backend};

use crate::precision::widen;

/// Returns the sum over all buffers, of which there is one at least.
pub fn sum_of_squares<B: Backend>(buffers: Vec<Tensor<B, 1>>) -> Tensor<B, 1> {
    let squares = |buffer: Tensor<B, 1>| {
        let buffer = widen(buffer);
        (buffer.clone() * buffer).sum()
    };
    let sums = buffers.into_iter().map(squares);
    sums.reduce(|a, b| a + b).expect("there is a buffer")
}
