//! The product in burn's operations, of widened factors.

use burn::tensor::{DType, Tensor, backend::Backend};

use super::product::{affine, factor_gradients, multiply};
use super::{LinearGradients, LinearInputs, LinearWanted, WeightOrder};
use crate::precision::{compute_type, narrow, widen, zeros};

/// Returns `input · weight + bias`.
pub fn forward<B: Backend>(inputs: LinearInputs<B>) -> Tensor<B, 2> {
    let LinearInputs {
        input,
        weight,
        bias,
        order,
    } = inputs;
    let dtype = input.dtype();
    let inputs = LinearInputs {
        input: widened(input),
        weight: widened(weight),
        bias: bias.map(widened),
        order,
    };
    let output = affine(inputs, multiply);
    narrowed(output, dtype)
}

/// Returns the gradients that are wanted for the output's.
pub fn backward<B: Backend>(
    input: Tensor<B, 2>,
    weight: Tensor<B, 2>,
    order: WeightOrder,
    gradient: Tensor<B, 2>,
    wanted: LinearWanted,
) -> LinearGradients<B> {
    let (dtype, [rows, columns]) = (gradient.dtype(), gradient.dims());
    let [input, weight, gradient] = [input, weight, gradient].map(widened::<B, 2>);
    let of_bias = wanted.bias.then(|| match rows * columns {
        0 => zeros([columns], &gradient.device(), dtype),
        _ => narrow(gradient.clone().sum_dim(0).squeeze_dim::<1>(0), dtype),
    });
    let [of_input, of_weight] = factor_gradients(input, weight, order, gradient, wanted, multiply)
        .map(|gradient| gradient.map(|gradient| narrowed(gradient, dtype)));
    LinearGradients {
        input: of_input,
        weight: of_weight,
        bias: of_bias,
    }
}

/// As [`widen`], also of tensors without elements, which burn's cast does not take on CubeCL.
fn widened<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Tensor<B, D> {
    match tensor.shape().num_elements() {
        0 => zeros(tensor.dims(), &tensor.device(), compute_type(tensor.dtype())),
        _ => widen(tensor),
    }
}

/// As [`narrow`], also of tensors without elements.
fn narrowed<B: Backend, const D: usize>(tensor: Tensor<B, D>, dtype: DType) -> Tensor<B, D> {
    match tensor.shape().num_elements() {
        0 => zeros(tensor.dims(), &tensor.device(), dtype),
        _ => narrow(tensor, dtype),
    }
}
