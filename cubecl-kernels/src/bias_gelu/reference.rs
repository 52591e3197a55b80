//! Bias and GELU in burn's operations.
//!
//! Computed as `x · sigmoid(2u)` with `u` the argument of tanh: the same function in fewer passes.

use burn::tensor::{Tensor, activation::sigmoid, backend::Backend};

use super::BiasGeluGradients;
use crate::precision::{narrow, widen};

/// `2 √(2/π)`
pub(super) const SLOPE: f64 = 2.0 * std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2;
pub(super) const CUBE: f64 = 0.044715;

/// Returns `gelu(input + bias)`.
pub fn forward<B: Backend>(input: Tensor<B, 2>, bias: Tensor<B, 1>) -> Tensor<B, 2> {
    let dtype = input.dtype();
    let x = widen(input) + widen(bias).unsqueeze::<2>();
    let slope = (x.clone() * x.clone()).mul_scalar(CUBE * SLOPE).add_scalar(SLOPE);
    narrow(sigmoid(slope * x.clone()) * x, dtype)
}

/// Returns the gradients for the output's.
pub fn backward<B: Backend>(input: Tensor<B, 2>, bias: Tensor<B, 1>, gradient: Tensor<B, 2>) -> BiasGeluGradients<B> {
    let dtype = input.dtype();
    let x = widen(input) + widen(bias).unsqueeze::<2>();
    let square = x.clone() * x.clone();
    let share = sigmoid(square.clone().mul_scalar(CUBE * SLOPE).add_scalar(SLOPE) * x.clone());
    let inner = square.mul_scalar(3.0 * CUBE * SLOPE).add_scalar(SLOPE);
    let derivative = share.clone() + x * share.clone() * (share.neg().add_scalar(1.0)) * inner;
    let input = widen(gradient) * derivative;
    BiasGeluGradients {
        bias: narrow(input.clone().sum_dim(0).squeeze_dim::<1>(0), dtype),
        input: narrow(input, dtype),
    }
}
