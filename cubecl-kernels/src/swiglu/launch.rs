//! Launches the kernels of SwiGLU, for tensors that have elements.

use burn_backend::cubecl::dtype_to_elem_type;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

use super::kernel;
use crate::cube::launch::{address_type, empty_beside};
use crate::cube::math::is_fast;
use crate::cube::walk::{RowWalk, dims};

/// Returns `silu(gate) ∘ up`.
pub(crate) fn forward(input: CubeTensor) -> CubeTensor {
    let input = into_contiguous(input);
    let ([rows, width], dtype) = (dims(&input), input.dtype);
    let columns = width / 2;
    let output = empty_beside(&input, &[rows, columns], dtype);
    let walk = RowWalk::over(&input, rows, columns);
    let (client, address_type) = (input.client.clone(), address_type(&[&input]));
    // SAFETY: the kernel bounds rows and vectors by those of the output; the input's rows are twice as long.
    unsafe {
        kernel::forward::launch_unchecked(
            &client,
            walk.cube_count(),
            walk.cube_dim(),
            address_type,
            walk.vector_size,
            input.into_buffer_arg(),
            output.clone().into_buffer_arg(),
            rows,
            walk.vectors,
            is_fast(&client),
            dtype_to_elem_type(dtype),
        );
    }
    output
}

/// Returns the input's gradient for the output's.
pub(crate) fn backward(input: CubeTensor, gradient: CubeTensor) -> CubeTensor {
    let [input, gradient] = [input, gradient].map(into_contiguous);
    let ([rows, width], dtype) = (dims(&input), input.dtype);
    let columns = width / 2;
    let output = empty_beside(&input, &[rows, width], dtype);
    let walk = RowWalk::over(&input, rows, columns);
    let (client, address_type) = (input.client.clone(), address_type(&[&input]));
    // SAFETY: the kernel bounds rows and vectors by those of the gradient; the rows of input and output are twice as
    // long.
    unsafe {
        kernel::backward::launch_unchecked(
            &client,
            walk.cube_count(),
            walk.cube_dim(),
            address_type,
            walk.vector_size,
            input.into_buffer_arg(),
            gradient.into_buffer_arg(),
            output.clone().into_buffer_arg(),
            rows,
            walk.vectors,
            is_fast(&client),
            dtype_to_elem_type(dtype),
        );
    }
    output
}
