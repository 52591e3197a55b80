//! SwiGLU in burn's operations.

use burn::tensor::Tensor;

use super::FAR;
use crate::precision::{at_least, at_most, narrow, sigmoid, widen, zeros};

/// Returns `silu(gate) ∘ up`.
pub fn forward(input: Tensor<2>) -> Tensor<2> {
    let (dtype, [rows, columns]) = (input.dtype(), input.dims());
    if rows * columns == 0 {
        return zeros([rows, columns / 2], &input.device(), dtype);
    }
    let [gate, up] = halves(widen(input));
    // Not lower, so that the share of −∞, 0, makes `silu` 0.
    let gate = at_least(gate, -FAR);
    narrow(sigmoid(gate.clone()) * gate * up, dtype)
}

/// Returns the input's gradient for the output's.
pub fn backward(input: Tensor<2>, gradient: Tensor<2>) -> Tensor<2> {
    let dtype = input.dtype();
    if input.dims().contains(&0) {
        return input;
    }
    let ([gate, up], gradient) = (halves(widen(input)), widen(gradient));
    let gate = at_least(gate, -FAR);
    let share = sigmoid(gate.clone());
    let silu = share.clone() * gate.clone();
    // silu' = s + x s (1 − s), where 1 − s is 0 of an x that is not near.
    let near = at_most(gate, FAR);
    let slope = share.clone() + near * share.clone() * share.neg().add_scalar(1.0);
    let of_gate = gradient.clone() * up * slope;
    narrow(Tensor::cat(vec![of_gate, gradient * silu], 1), dtype)
}

fn halves(input: Tensor<2>) -> [Tensor<2>; 2] {
    let columns = input.dims()[1] / 2;
    [0, 1].map(|half| input.clone().narrow(1, half * columns, columns))
}
