//! Launches the kernels of the sum.

use burn::tensor::DType;
use burn_cubecl::{CubeRuntime, kernel::into_contiguous, tensor::CubeTensor};
use cubecl::prelude::*;

use super::kernel;
use crate::grid::{RowWalk, address_type, column_sum, dims, empty, site};
use crate::random::RowDropout;

/// Returns the sum.
pub(crate) fn forward<R: CubeRuntime>(
    [input, residual]: [CubeTensor<R>; 2],
    bias: Option<CubeTensor<R>>,
    dropout: Option<&RowDropout>,
) -> CubeTensor<R> {
    let (input, residual, bias) = (
        into_contiguous(input),
        into_contiguous(residual),
        bias.map(into_contiguous),
    );
    let ([rows, columns], dtype) = (dims(&input), input.dtype);
    let output = empty(&input, [rows, columns], dtype);
    if rows * columns == 0 {
        return output;
    }
    let walk = RowWalk::new(&input, rows, columns);
    let (client, address_type) = (input.client.clone(), address_type(&[&input]));
    let (numbers, places, length) = site(dropout, &input);
    let has_bias = bias.is_some();
    let bias = bias.unwrap_or_else(|| input.clone());
    // SAFETY: the kernel bounds rows and vectors by those of inputs and output; the bias has a row's, and the places are
    // two numbers for each row. What there is not is not read.
    unsafe {
        kernel::forward::launch_unchecked::<R>(
            &client,
            walk.cube_count(),
            walk.cube_dim(),
            address_type,
            walk.vector_size,
            input.into_array_arg(),
            bias.into_array_arg(),
            residual.into_array_arg(),
            ArrayArg::from_raw_parts(places, length),
            output.clone().into_array_arg(),
            numbers,
            rows,
            walk.vectors,
            has_bias,
            dropout.is_some(),
            dtype.into(),
        );
    }
    output
}

/// Returns the gradients of the input and, where there is one, of the bias, for the sum's.
pub(crate) fn backward<R: CubeRuntime>(
    gradient: CubeTensor<R>,
    has_bias: bool,
    dropout: Option<&RowDropout>,
) -> (CubeTensor<R>, Option<CubeTensor<R>>) {
    let gradient = into_contiguous(gradient);
    let ([rows, columns], dtype) = (dims(&gradient), gradient.dtype);
    let has_dropout = dropout.is_some();
    if columns == 0 {
        let bias = has_bias.then(|| empty(&gradient, [columns], dtype));
        return (gradient, bias);
    }
    if !has_bias && (!has_dropout || rows == 0) {
        return (gradient, None);
    }
    let walk = RowWalk::new(&gradient, rows.max(1), columns);
    let client = gradient.client.clone();
    // What is not written is a single vector.
    let output_rows = if has_dropout { rows } else { 0 };
    let output = empty(&gradient, [output_rows, columns], dtype);
    let parts = if has_bias { walk.parts } else { 0 };
    let partials = empty(&gradient, [parts, columns], DType::F32);
    let (numbers, places, length) = site(dropout, &gradient);
    let address_type = address_type(&[&gradient, &partials]);
    // SAFETY: the kernel bounds rows and vectors by those of the gradient; the output, where it is written, has as many,
    // the partial sums a row for each part, and the places are two numbers for each row.
    unsafe {
        kernel::backward::launch_unchecked::<R>(
            &client,
            walk.cube_count(),
            walk.cube_dim(),
            address_type,
            walk.vector_size,
            gradient.clone().into_array_arg(),
            ArrayArg::from_raw_parts(places, length),
            output.clone().into_array_arg(),
            partials.clone().into_array_arg(),
            numbers,
            rows,
            walk.vectors,
            has_bias,
            has_dropout,
            dtype.into(),
        );
    }
    let bias = has_bias.then(|| column_sum(partials, parts, dtype));
    (if has_dropout { output } else { gradient }, bias)
}
