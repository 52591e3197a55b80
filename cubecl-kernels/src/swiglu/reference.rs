//! SwiGLU in burn's operations.

use burn::tensor::{Tensor, activation::sigmoid, backend::Backend};

use crate::precision::{narrow, widen};

/// Returns `silu(gate) ∘ up`.
pub fn forward<B: Backend>(input: Tensor<B, 2>) -> Tensor<B, 2> {
    let dtype = input.dtype();
    let [gate, up] = halves(widen(input));
    narrow(sigmoid(gate.clone()) * gate * up, dtype)
}

/// Returns the input's gradient for the output's.
pub fn backward<B: Backend>(input: Tensor<B, 2>, gradient: Tensor<B, 2>) -> Tensor<B, 2> {
    let dtype = input.dtype();
    let ([gate, up], gradient) = (halves(widen(input)), widen(gradient));
    let share = sigmoid(gate.clone());
    let silu = share.clone() * gate.clone();
    // silu' = s + x s (1 − s)
    let slope = share.clone() + silu.clone() * share.neg().add_scalar(1.0);
    let of_gate = gradient.clone() * up * slope;
    narrow(Tensor::cat(vec![of_gate, gradient * silu], 1), dtype)
}

fn halves<B: Backend>(input: Tensor<B, 2>) -> [Tensor<B, 2>; 2] {
    let columns = input.dims()[1] / 2;
    [0, 1].map(|half| input.clone().narrow(1, half * columns, columns))
}
