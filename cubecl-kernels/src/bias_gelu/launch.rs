//! Launches the kernels of bias and GELU, for tensors that have elements.

use burn_backend::cubecl::dtype_to_elem_type;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

use super::kernel;
use crate::cube::columns::Partials;
use crate::cube::launch::{address_type, empty_beside};
use crate::cube::math::is_fast;
use crate::cube::walk::{RowWalk, dims};

/// Returns `gelu(input + bias)`.
pub(super) fn forward(input: CubeTensor, bias: CubeTensor) -> CubeTensor {
    let (input, bias) = (into_contiguous(input), into_contiguous(bias));
    let ([rows, columns], dtype) = (dims(&input), input.dtype);
    let output = empty_beside(&input, &[rows, columns], dtype);
    let walk = RowWalk::over(&input, rows, columns);
    let (client, address_type) = (input.client.clone(), address_type(&[&input]));
    // SAFETY: the kernel bounds rows and vectors by those of input and output; the bias has a row's.
    unsafe {
        kernel::forward::launch_unchecked(
            &client,
            walk.cube_count(),
            walk.cube_dim(),
            address_type,
            walk.vector_size,
            input.into_buffer_arg(),
            bias.into_buffer_arg(),
            output.clone().into_buffer_arg(),
            rows,
            walk.vectors,
            is_fast(&client),
            dtype_to_elem_type(dtype),
        );
    }
    output
}

/// Returns the input's gradient for the output's, and the sums of parts of its rows, whose sum is the bias'.
pub(super) fn backward(input: CubeTensor, bias: CubeTensor, gradient: CubeTensor) -> (CubeTensor, Partials) {
    let [input, bias, gradient] = [input, bias, gradient].map(into_contiguous);
    let ([rows, columns], dtype) = (dims(&input), input.dtype);
    let output = empty_beside(&input, &[rows, columns], dtype);
    let walk = RowWalk::in_parts(&input, rows, columns);
    let partials = Partials::empty(&input, 1, walk.parts, columns);
    let client = input.client.clone();
    let address_type = address_type(&[&input, partials.tensor()]);
    // SAFETY: the kernel bounds rows and vectors by those of input, gradient and output; the bias has a row's, and the
    // partial sums a row for each part.
    unsafe {
        kernel::backward::launch_unchecked(
            &client,
            walk.cube_count(),
            walk.cube_dim(),
            address_type,
            walk.vector_size,
            input.into_buffer_arg(),
            bias.into_buffer_arg(),
            gradient.into_buffer_arg(),
            output.clone().into_buffer_arg(),
            partials.tensor().clone().into_buffer_arg(),
            rows,
            walk.vectors,
            is_fast(&client),
            dtype_to_elem_type(dtype),
        );
    }
    (output, partials)
}
