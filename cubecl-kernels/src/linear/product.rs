//! The matmul by a backend's own operation, or by a library's
//! ([`KernelBackend::multiply`](crate::KernelBackend::multiply)).
//!
//! CubeCL's backends multiply in the type of the factors: burn's matmul accumulates f16 and bf16 in f32 and rounds once
//! (`MatmulElems::from_globals` in cubek-matmul: accumulators are f32 wherever the output has 16 bits), and takes
//! transposed factors. With fusion the bias is fused with the matmul, or with what comes after it. The
//! [reference](super::reference) widens the factors first.

use burn::tensor::{Tensor, backend::Backend};

#[cfg(feature = "cubecl")]
use super::{LinearGradients, reference};
use super::{LinearInputs, LinearWanted, WeightOrder};
use crate::KernelBackend;
use crate::accumulate::{GradientPlace, GradientSums};
#[cfg(feature = "cubecl")]
use crate::bias_dropout_add::AddRule;
use crate::precision::zeros;

/// How a backend multiplies two matrices, and adds a bias to the product's rows.
pub(super) type Multiply<B> = fn(Tensor<B, 2>, Tensor<B, 2>, Option<Tensor<B, 1>>) -> Tensor<B, 2>;

/// Returns `input · weight + bias` on CubeCL.
#[cfg(feature = "cubecl")]
pub(crate) fn forward<B: KernelBackend>(inputs: LinearInputs<B>) -> Tensor<B, 2> {
    if B::supports_dtype(&inputs.input.device(), inputs.input.dtype()) {
        affine(inputs, B::multiply)
    } else {
        // A type that the device stores, but does not compute with.
        reference::forward(inputs)
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
    let [of_input, of_weight] = factor_gradients(input, weight, order, gradient, wanted, B::multiply);
    LinearGradients {
        input: of_input,
        weight: of_weight,
        bias: of_bias,
    }
}

/// Returns `input · weight + bias` in the type of these.
pub(super) fn affine<B: Backend>(inputs: LinearInputs<B>, multiply: Multiply<B>) -> Tensor<B, 2> {
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
    multiply(input, weight, bias)
}

/// Returns the gradients of input and weight, by views of the other factor: no transposed copy is made here.
pub(super) fn factor_gradients<B: Backend>(
    input: Tensor<B, 2>,
    weight: Tensor<B, 2>,
    order: WeightOrder,
    gradient: Tensor<B, 2>,
    wanted: LinearWanted,
    multiply: Multiply<B>,
) -> [Option<Tensor<B, 2>>; 2] {
    let of_input = wanted.input.then(|| {
        let turned = match order {
            WeightOrder::InputFirst => weight.transpose(),
            WeightOrder::OutputFirst => weight,
        };
        multiply(gradient.clone(), turned, None)
    });
    let of_weight = wanted.weight.then(|| match order {
        WeightOrder::InputFirst => multiply(input.transpose(), gradient, None),
        WeightOrder::OutputFirst => multiply(gradient.transpose(), input, None),
    });
    [of_input, of_weight]
}

/// Adds `a · b` to its place among sums, by the backend's product and its
/// [`accumulate`](crate::accumulate::accumulate).
pub(crate) fn add_multiplied<B: KernelBackend>(
    sums: Tensor<B, 1>,
    a: Tensor<B, 2>,
    b: Tensor<B, 2>,
    place: GradientPlace,
) -> Tensor<B, 1> {
    let length = a.dims()[0] * b.dims()[1];
    let sums = GradientSums {
        non_finite: zeros([place.parameter + 1], &sums.device(), sums.dtype()),
        sums,
    };
    B::accumulate(sums, B::multiply(a, b, None).reshape([length]), place).sums
}

/// Burn's product: of 16 bits, it is rounded, and its sum with the bias once more. Zeros where there is nothing to add
/// up: it cannot be launched on CubeCL for no elements.
pub(crate) fn multiply<B: Backend>(a: Tensor<B, 2>, b: Tensor<B, 2>, bias: Option<Tensor<B, 1>>) -> Tensor<B, 2> {
    let ([rows, depth], [_, columns]) = (a.dims(), b.dims());
    let product = if [rows, depth, columns].contains(&0) {
        zeros([rows, columns], &a.device(), a.dtype())
    } else {
        a.matmul(b)
    };
    match bias {
        Some(bias) if rows * columns > 0 => product + bias.unsqueeze::<2>(),
        _ => product,
    }
}
