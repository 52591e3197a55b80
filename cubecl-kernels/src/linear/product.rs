//! The matmul by a backend's own operation, or by a library's
//! ([`KernelBackend::multiply`](crate::KernelBackend::multiply)).

use burn::tensor::{Tensor, backend::Backend};

use super::{LinearInputs, LinearWanted, WeightOrder};
use crate::KernelBackend;
use crate::accumulate::{GradientPlace, GradientSums};
use crate::precision::zeros;

/// How a backend multiplies two matrices, and adds a bias to the product's rows.
pub(super) type Multiply<B> = fn(Tensor<B, 2>, Tensor<B, 2>, Option<Tensor<B, 1>>) -> Tensor<B, 2>;

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
