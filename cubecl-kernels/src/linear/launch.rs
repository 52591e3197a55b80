//! The product on CubeCL where a library computes products; by burn, if the library has no kernel for one.

use std::ops::Range;

use burn::tensor::{DType, Slice};
use burn_backend::ops::FloatTensorOps;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

use super::factors::{factor_gradients, input_first};
use super::{LinearWanted, WeightOrder};
use crate::accumulate::{Accumulate, GradientPlace};
use crate::bias_dropout_add::Backward;
use crate::cube::launch::own;
use crate::cube::walk::dims;
#[cfg(feature = "cublaslt")]
use crate::cublaslt;
use crate::operation::Operation;
use crate::row_blocks::RowBlocks;

/// Returns `input · weight + bias`.
pub(super) fn affine(
    input: CubeTensor,
    weight: CubeTensor,
    bias: Option<CubeTensor>,
    order: WeightOrder,
) -> CubeTensor {
    multiply(input, input_first(weight, order, CubeBackend::float_transpose), bias)
}

/// Returns the gradients of input, weight and bias that are wanted for the output's.
pub(super) fn backward(
    inputs: [CubeTensor; 3],
    order: WeightOrder,
    wanted: LinearWanted,
) -> (Option<CubeTensor>, Option<CubeTensor>, Option<CubeTensor>) {
    // The sums of the columns: the gradient of a sum's bias.
    let rule = Backward {
        has_bias: true,
        dropout: None,
    };
    let of_bias = wanted.bias.then(|| rule.cube(inputs[2].clone()).1);
    let product = |a, b| multiply(a, b, None);
    let [of_input, of_weight] = factor_gradients(inputs, order, wanted, CubeBackend::float_transpose, product);
    (of_input, of_weight, of_bias.flatten())
}

/// Returns the sums with `a · b` added to its place, or written there when it is the first; in their own memory if
/// nothing else holds them.
pub(super) fn add_product(sums: CubeTensor, [a, b]: [CubeTensor; 2], place: GradientPlace) -> CubeTensor {
    let sums = own(sums);
    #[cfg(feature = "cublaslt")]
    if cublaslt::add_product(&sums, [&a, &b], place) {
        return sums;
    }
    let length = dims(&a)[0] * dims(&b)[1];
    let product = CubeBackend::float_reshape(CubeBackend::float_matmul(a, b), [length].into());
    let non_finite = CubeBackend::float_zeros([place.parameter + 1].into(), &sums.device, DType::F32.into());
    let [sums, _] = Accumulate(place).cube(([sums, non_finite], product));
    sums
}

/// Returns the output with the rows of the product.
pub(super) fn blocks(
    (input, weight, order): (CubeTensor, CubeTensor, WeightOrder),
    bias: Option<CubeTensor>,
    output: CubeTensor,
    [from, to]: [RowBlocks; 2],
) -> CubeTensor {
    let weight = input_first(weight, order, CubeBackend::float_transpose);
    let (input, output) = (into_contiguous(input), own(output));
    #[cfg(feature = "cublaslt")]
    if cublaslt::multiply_blocks(&input, &weight, bias.as_ref(), &output, [from, to]) {
        return output;
    }
    let rows = |range: Range<usize>| [Slice::from(range), Slice::from(..)];
    let each = from.ranges().zip(to.ranges());
    each.fold(output, |output, (from, to)| {
        let input = CubeBackend::float_slice(input.clone(), &rows(from));
        let product = multiply(input, weight.clone(), bias.clone());
        CubeBackend::float_slice_assign(output, &rows(to), product)
    })
}

/// Returns `a · b + bias`.
fn multiply(a: CubeTensor, b: CubeTensor, bias: Option<CubeTensor>) -> CubeTensor {
    #[cfg(feature = "cublaslt")]
    if let Some(output) = cublaslt::multiply([&a, &b], bias.as_ref()) {
        return output;
    }
    let product = CubeBackend::float_matmul(a, b);
    match bias {
        Some(bias) => {
            let columns = dims(&product)[1];
            CubeBackend::float_add(product, CubeBackend::float_reshape(bias, [1, columns].into()))
        }
        None => product,
    }
}
