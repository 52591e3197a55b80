//! Launches the kernels of the sum, for tensors that have elements.

use burn_backend::cubecl::dtype_to_elem_type;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

use super::kernel;
use crate::cube::columns::Partials;
use crate::cube::dropout::dropped_rows_argument;
use crate::cube::launch::{address_type, empty_beside};
use crate::cube::walk::{RowWalk, dims};
use crate::random::RowDropout;

/// Returns the sum.
pub(super) fn forward(
    input: CubeTensor,
    bias: Option<CubeTensor>,
    residual: CubeTensor,
    dropout: Option<&RowDropout>,
) -> CubeTensor {
    let (input, residual, bias) = (
        into_contiguous(input),
        into_contiguous(residual),
        bias.map(into_contiguous),
    );
    let ([rows, columns], dtype) = (dims(&input), input.dtype);
    let output = empty_beside(&input, &[rows, columns], dtype);
    let walk = RowWalk::over(&input, rows, columns);
    let (client, address_type) = (input.client.clone(), address_type(&[&input]));
    // SAFETY: the kernel bounds rows and vectors by those of inputs and output; the bias has a row's, and the places
    // are two numbers for each row.
    unsafe {
        kernel::forward::launch_unchecked(
            &client,
            walk.cube_count(),
            walk.cube_dim(),
            address_type,
            walk.vector_size,
            input.into_buffer_arg(),
            bias.map(CubeTensor::into_buffer_arg).into(),
            residual.into_buffer_arg(),
            dropout.map(|dropout| dropped_rows_argument(&client, dropout)).into(),
            output.clone().into_buffer_arg(),
            rows,
            walk.vectors,
            dtype_to_elem_type(dtype),
        );
    }
    output
}

/// Returns the input's gradient for the sum's and, where there is a bias, the sums of parts of its rows, whose sum is
/// the bias'.
pub(super) fn backward(
    gradient: CubeTensor,
    has_bias: bool,
    dropout: Option<&RowDropout>,
) -> (CubeTensor, Option<Partials>) {
    let gradient = into_contiguous(gradient);
    let ([rows, columns], dtype) = (dims(&gradient), gradient.dtype);
    if !has_bias && dropout.is_none() {
        return (gradient, None);
    }
    let walk = if has_bias {
        RowWalk::in_parts(&gradient, rows, columns)
    } else {
        RowWalk::over(&gradient, rows, columns)
    };
    let client = gradient.client.clone();
    let of_input = dropout.map(|_| empty_beside(&gradient, &[rows, columns], dtype));
    let partials = has_bias.then(|| Partials::empty(&gradient, 1, walk.parts, columns));
    let sums = partials.as_ref().map(Partials::tensor);
    let address_type = address_type(&[sums.unwrap_or(&gradient), &gradient]);
    // SAFETY: the kernel bounds rows and vectors by those of the gradient; the output, where it is written, has as
    // many, the partial sums a row for each part, and the places are two numbers for each row.
    unsafe {
        kernel::backward::launch_unchecked(
            &client,
            walk.cube_count(),
            walk.cube_dim(),
            address_type,
            walk.vector_size,
            gradient.clone().into_buffer_arg(),
            dropout.map(|dropout| dropped_rows_argument(&client, dropout)).into(),
            of_input.clone().map(CubeTensor::into_buffer_arg).into(),
            sums.map(|sums| sums.clone().into_buffer_arg()).into(),
            rows,
            walk.vectors,
            dtype_to_elem_type(dtype),
        );
    }
    (of_input.unwrap_or(gradient), partials)
}
