//! Bias and GELU in burn's operations.
//!
//! Computed as `x · sigmoid(2u)` with `u` the argument of tanh: the same function in fewer passes.

use burn::tensor::Tensor;

use super::{CUBE, FAR, SLOPE};
use crate::precision::{at_least, at_most, narrow, sigmoid, widen, zeros};

/// Returns `gelu(input + bias)`.
pub fn forward(input: Tensor<2>, bias: Tensor<1>) -> Tensor<2> {
    let dtype = input.dtype();
    if input.dims().contains(&0) {
        return input;
    }
    // Not lower, so that the share of −∞, 0, makes it 0.
    let x = at_least(widen(input) + widen(bias).unsqueeze::<2>(), -FAR);
    let near = at_most(x.clone(), FAR);
    let slope = (near.clone() * near.clone()).mul_scalar(CUBE * SLOPE).add_scalar(SLOPE);
    narrow(sigmoid(slope * near) * x, dtype)
}

/// Returns the gradients for the output's.
pub fn backward(input: Tensor<2>, bias: Tensor<1>, gradient: Tensor<2>) -> (Tensor<2>, Tensor<1>) {
    let dtype = input.dtype();
    if input.dims().contains(&0) {
        return (gradient, zeros(bias.dims(), &bias.device(), dtype));
    }
    let x = widen(input) + widen(bias).unsqueeze::<2>();
    let x = at_most(at_least(x, -FAR), FAR);
    let square = x.clone() * x.clone();
    let share = sigmoid(square.clone().mul_scalar(CUBE * SLOPE).add_scalar(SLOPE) * x.clone());
    let inner = square.mul_scalar(3.0 * CUBE * SLOPE).add_scalar(SLOPE);
    let derivative = share.clone() + x * share.clone() * (share.neg().add_scalar(1.0)) * inner;
    let input = widen(gradient) * derivative;
    let bias = narrow(input.clone().sum_dim(0).squeeze_dim::<1>(0), dtype);
    (narrow(input, dtype), bias)
}
