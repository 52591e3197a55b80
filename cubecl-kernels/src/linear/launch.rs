//! The product on CubeCL's backends, by [`KernelBackend::multiply`].
//!
//! They multiply in the type of the factors: burn's matmul accumulates f16 and bf16 in f32 and rounds once
//! (`MatmulElems::from_globals` in cubek-matmul: accumulators are f32 wherever the output has 16 bits), and takes
//! transposed factors. With fusion the bias is fused with the matmul, or with what comes after it. The
//! [reference](super::reference) widens the factors first.

use burn::tensor::Tensor;

use super::product::{affine, factor_gradients};
use super::{LinearGradients, LinearInputs, LinearWanted, WeightOrder, reference};
use crate::KernelBackend;
use crate::bias_dropout_add::AddRule;

/// Returns `input · weight + bias`.
pub(crate) fn forward<B: KernelBackend>(inputs: LinearInputs<B>) -> Tensor<B, 2> {
    if B::supports_dtype(&inputs.input.device(), inputs.input.dtype()) {
        affine(inputs, B::multiply)
    } else {
        // A type that the device stores, but does not compute with.
        reference::forward(inputs)
    }
}

/// Returns the gradients that are wanted for the output's; the bias' is added up in f32.
pub(crate) fn backward<B: KernelBackend>(
    input: Tensor<B, 2>,
    weight: Tensor<B, 2>,
    order: WeightOrder,
    gradient: Tensor<B, 2>,
    wanted: LinearWanted,
) -> LinearGradients<B> {
    if !B::supports_dtype(&gradient.device(), gradient.dtype()) {
        return reference::backward(input, weight, order, gradient, wanted);
    }
    let of_bias = wanted.bias.then(|| {
        // The sums of the columns: what the kernels of the sum with a bias give as the gradient of it.
        let rule = AddRule {
            has_bias: true,
            dropout: None,
        };
        let gradients = B::bias_dropout_add_backward(gradient.clone(), &rule);
        gradients.bias.expect("the rule has a bias")
    });
    let [of_input, of_weight] = factor_gradients(input, weight, order, gradient, wanted, B::multiply);
    LinearGradients {
        input: of_input,
        weight: of_weight,
        bias: of_bias,
    }
}
