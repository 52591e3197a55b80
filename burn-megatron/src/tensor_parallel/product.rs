//! The matrix products of the layers here, in the parameters' type. Called by the linear layers and the output head.
//!
//! Fused ones add the bias where the product is made, and their sums are of f32 in 16 bits. As for burn's: in 16 bits, where a factor or the result is a single row or column, they are computed in f32: of these burn's CPU
//! backend rounds the sum to f16 after every term, so that 1 + 1 + … stalls at 2048. They are thin, so that costs little.

use burn::tensor::module::linear as burn_linear;
use burn::tensor::{Tensor, backend::Backend};
use cubecl_kernels::{KernelBackend, Kernels, linear};

use super::checked;
use crate::precision::{by_rows, is_half, narrow, widen};

/// Returns `input · weight + bias`.
///
/// # Shapes
/// - `input`: `[..., d_input]`; two dimensions in 16 bits
/// - `weight`: `[d_input, d_output]`
/// - output: `[..., d_output]`
pub(super) fn affine<B: KernelBackend, const D: usize>(
    kernels: Kernels,
    input: Tensor<B, D>,
    weight: Tensor<B, 2>,
    bias: Option<Tensor<B, 1>>,
) -> Tensor<B, D> {
    if kernels == Kernels::Fused {
        return by_rows(input, |rows| checked(linear::linear(rows, weight, bias)));
    }
    let dtype = input.dtype();
    match is_widened(&input, &weight) {
        true => narrow(burn_linear(widen(input), widen(weight), bias.map(widen)), dtype),
        false => burn_linear(input, weight, bias),
    }
}

/// Returns `input · weightᵀ`.
pub(super) fn product_transposed<B: KernelBackend>(
    kernels: Kernels,
    input: Tensor<B, 2>,
    weight: Tensor<B, 2>,
) -> Tensor<B, 2> {
    if kernels == Kernels::Fused {
        return checked(linear::linear_transposed(input, weight));
    }
    let (dtype, weight) = (input.dtype(), weight.transpose());
    match is_widened(&input, &weight) {
        true => narrow(widen(input).matmul(widen(weight)), dtype),
        false => input.matmul(weight),
    }
}

fn is_widened<B: Backend, const D: usize>(input: &Tensor<B, D>, weight: &Tensor<B, 2>) -> bool {
    is_half(input.dtype()) && (weight.dims().contains(&1) || input.dims()[0] == 1)
}
