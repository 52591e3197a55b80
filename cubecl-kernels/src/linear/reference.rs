//! The product in burn's operations.

use burn::tensor::{Tensor, backend::Backend};

use super::{LinearGradients, LinearInputs, LinearWanted, WeightOrder};
use crate::precision::{narrow, widen};

/// Returns `input · weight + bias`.
pub fn forward<B: Backend>(inputs: LinearInputs<B>) -> Tensor<B, 2> {
    let LinearInputs {
        input,
        weight,
        bias,
        order,
    } = inputs;
    let dtype = input.dtype();
    let weight = match order {
        WeightOrder::InputFirst => weight,
        WeightOrder::OutputFirst => weight.transpose(),
    };
    let dims = [input.dims()[0], weight.dims()[1]];
    if dims.contains(&0) {
        return Tensor::zeros(dims, (&input.device(), dtype));
    }
    let output = product(widen(input), widen(weight));
    let output = match bias {
        Some(bias) => output + widen(bias).unsqueeze::<2>(),
        None => output,
    };
    narrow(output, dtype)
}

/// Returns the gradients that are wanted for the output's.
pub fn backward<B: Backend>(
    input: Tensor<B, 2>,
    weight: Tensor<B, 2>,
    order: WeightOrder,
    gradient: Tensor<B, 2>,
    wanted: LinearWanted,
) -> LinearGradients<B> {
    let dtype = gradient.dtype();
    let gradient = widen(gradient);
    let of_input = wanted.input.then(|| {
        let weight = widen(weight);
        let turned = match order {
            WeightOrder::InputFirst => weight.transpose(),
            WeightOrder::OutputFirst => weight,
        };
        narrow(product(gradient.clone(), turned), dtype)
    });
    let of_weight = wanted.weight.then(|| {
        let input = widen(input);
        let result = match order {
            WeightOrder::InputFirst => product(input.transpose(), gradient.clone()),
            WeightOrder::OutputFirst => product(gradient.clone().transpose(), input),
        };
        narrow(result, dtype)
    });
    let of_bias = wanted
        .bias
        .then(|| narrow(gradient.sum_dim(0).squeeze_dim::<1>(0), dtype));
    LinearGradients {
        input: of_input,
        weight: of_weight,
        bias: of_bias,
    }
}

/// The matrix product, zeros where there is nothing to add up.
fn product<B: Backend>(a: Tensor<B, 2>, b: Tensor<B, 2>) -> Tensor<B, 2> {
    let ([rows, depth], [_, columns]) = (a.dims(), b.dims());
    match rows * depth * columns {
        0 => Tensor::zeros([rows, columns], (&a.device(), a.dtype())),
        _ => a.matmul(b),
    }
}
