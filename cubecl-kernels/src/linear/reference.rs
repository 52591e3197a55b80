//! The product in burn's operations.
//!
//! Burn's matmul on CubeCL takes factors of 16 bits as they are, adds up in f32 and rounds once
//! (`MatmulElems::from_globals` in cubek-matmul), and takes transposed factors; with fusion the bias is fused with it,
//! or with what comes after it. On other backends the factors are widened first.

#[cfg(feature = "cubecl")]
use burn::backend::DispatchDevice;
use burn::tensor::{DType, Tensor};

use super::factors::{factor_gradients, input_first};
use super::product::multiply;
use super::{LinearWanted, WeightOrder};
use crate::bias_dropout_add::Backward;
use crate::operation::apply;
use crate::precision::{compute_type, narrow, widen, zeros};

/// Returns `input · weight + bias`.
pub fn forward(input: Tensor<2>, weight: Tensor<2>, bias: Option<Tensor<1>>, order: WeightOrder) -> Tensor<2> {
    let dtype = input.dtype();
    let weight = input_first(widened(weight), order, Tensor::transpose);
    narrowed(multiply(widened(input), weight, bias.map(widened)), dtype)
}

/// Returns the gradients that are wanted for the output's; the bias' is added up in f32.
pub fn backward(
    inputs: [Tensor<2>; 3],
    order: WeightOrder,
    wanted: LinearWanted,
) -> (Option<Tensor<2>>, Option<Tensor<2>>, Option<Tensor<1>>) {
    let dtype = inputs[2].dtype();
    // The sums of the columns: the gradient of a sum's bias.
    let rule = Backward {
        has_bias: true,
        dropout: None,
    };
    let of_bias = wanted.bias.then(|| apply(&rule, inputs[2].clone()).1);
    let multiply = |a, b| multiply(a, b, None);
    let [of_input, of_weight] = factor_gradients(inputs.map(widened), order, wanted, Tensor::transpose, multiply)
        .map(|gradient| gradient.map(|gradient| narrowed(gradient, dtype)));
    (of_input, of_weight, of_bias.flatten())
}

/// Returns a tensor in the type that products are computed in, also one without elements, which burn's cast does not
/// take on CubeCL.
fn widened<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    let (device, dtype) = (tensor.device(), tensor.dtype());
    #[cfg(feature = "cubecl")]
    if matches!(device.as_dispatch(), DispatchDevice::Cube(_)) && device.supports_dtype(dtype) {
        return tensor;
    }
    match tensor.shape().num_elements() {
        0 => zeros(tensor.dims(), &device, compute_type(dtype)),
        _ => widen(tensor),
    }
}

/// Returns the same as [`narrow`], also of tensors without elements.
fn narrowed<const D: usize>(tensor: Tensor<D>, dtype: DType) -> Tensor<D> {
    match tensor.shape().num_elements() {
        0 => zeros(tensor.dims(), &tensor.device(), dtype),
        _ => narrow(tensor, dtype),
    }
}
