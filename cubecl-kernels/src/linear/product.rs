//! The product by a backend's own matrix product.
//!
//! CubeCL's backends multiply in the type of the factors: their product adds f16 and bf16 up in f32 and rounds once
//! (`MatmulElems::from_globals` in cubek-matmul: accumulators are f32 wherever the output has 16 bits), and takes factors
//! that lie transposed. Behind fusion the bias is fused with the product, or with what comes after it. The
//! [reference](super::reference) widens the factors first.

use burn::tensor::{Tensor, backend::Backend};

#[cfg(feature = "cubecl")]
use super::{LinearGradients, reference};
use super::{LinearInputs, LinearWanted, WeightOrder};
use crate::precision::zeros;
#[cfg(feature = "cubecl")]
use crate::{KernelBackend, norm::AddRule};

/// Returns `input · weight + bias` on CubeCL: of 16 bits, the product is rounded, and the sum once more.
#[cfg(feature = "cubecl")]
pub(crate) fn forward<B: Backend>(inputs: LinearInputs<B>) -> Tensor<B, 2> {
    match B::supports_dtype(&inputs.input.device(), inputs.input.dtype()) {
        true => affine(inputs),
        // A type that the device stores, but does not compute with.
        false => reference::forward(inputs),
    }
}

/// Returns the gradients that are wanted for the output's, on CubeCL; the bias' is added up in f32.
#[cfg(feature = "cubecl")]
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
    let [of_input, of_weight] = factor_gradients(input, weight, order, gradient, wanted);
    LinearGradients {
        input: of_input,
        weight: of_weight,
        bias: of_bias,
    }
}

/// Returns `input · weight + bias` in the type of these.
pub(super) fn affine<B: Backend>(inputs: LinearInputs<B>) -> Tensor<B, 2> {
    let LinearInputs {
        input,
        weight,
        bias,
        order,
    } = inputs;
    let weight = match order {
        WeightOrder::InputFirst => weight,
        WeightOrder::OutputFirst => weight.transpose(),
    };
    let output = product(input, weight);
    match bias {
        Some(bias) if !output.dims().contains(&0) => output + bias.unsqueeze::<2>(),
        _ => output,
    }
}

/// Returns the gradients of input and weight, by views of the other factor: no transposed copy is made here.
pub(super) fn factor_gradients<B: Backend>(
    input: Tensor<B, 2>,
    weight: Tensor<B, 2>,
    order: WeightOrder,
    gradient: Tensor<B, 2>,
    wanted: LinearWanted,
) -> [Option<Tensor<B, 2>>; 2] {
    let of_input = wanted.input.then(|| {
        let turned = match order {
            WeightOrder::InputFirst => weight.transpose(),
            WeightOrder::OutputFirst => weight,
        };
        product(gradient.clone(), turned)
    });
    let of_weight = wanted.weight.then(|| match order {
        WeightOrder::InputFirst => product(input.transpose(), gradient),
        WeightOrder::OutputFirst => product(gradient.transpose(), input),
    });
    [of_input, of_weight]
}

/// The matrix product, zeros where there is nothing to add up: burn's own cannot be launched on CubeCL for no elements.
fn product<B: Backend>(a: Tensor<B, 2>, b: Tensor<B, 2>) -> Tensor<B, 2> {
    let ([rows, depth], [_, columns]) = (a.dims(), b.dims());
    match [rows, depth, columns].contains(&0) {
        true => zeros([rows, columns], &a.device(), a.dtype()),
        false => a.matmul(b),
    }
}
