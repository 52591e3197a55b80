//! Launches the kernels of SwiGLU, for tensors that have elements.

use burn_cubecl::{CubeRuntime, tensor::CubeTensor};

use super::kernel;
use crate::cube::launch::{address_type, empty_beside, into_contiguous};
use crate::cube::math::is_fast;
use crate::cube::walk::{RowWalk, dims};

/// Returns `silu(gate) ∘ up`.
pub(crate) fn forward<R: CubeRuntime>(input: CubeTensor<R>) -> CubeTensor<R> {
    let input = into_contiguous(input);
    let ([rows, width], dtype) = (dims(&input), input.dtype);
    let columns = width / 2;
    let output = empty_beside(&input, &[rows, columns], dtype);
    let walk = RowWalk::over(&input, rows, columns);
    let (client, address_type) = (input.client.clone(), address_type(&[&input]));
    // SAFETY: the kernel bounds rows and vectors by those of the output; the input's rows are twice as long.
    unsafe {
        kernel::forward::launch_unchecked::<R>(
            &client,
            walk.cube_count(),
            walk.cube_dim(),
            address_type,
            walk.vector_size,
            input.into_array_arg(),
            output.clone().into_array_arg(),
            rows,
            walk.vectors,
            is_fast(&client),
            dtype.into(),
        );
    }
    output
}

/// Returns the input's gradient for the output's.
pub(crate) fn backward<R: CubeRuntime>(input: CubeTensor<R>, gradient: CubeTensor<R>) -> CubeTensor<R> {
    let [input, gradient] = [input, gradient].map(into_contiguous);
    let ([rows, width], dtype) = (dims(&input), input.dtype);
    let columns = width / 2;
    let output = empty_beside(&input, &[rows, width], dtype);
    let walk = RowWalk::over(&input, rows, columns);
    let (client, address_type) = (input.client.clone(), address_type(&[&input]));
    // SAFETY: the kernel bounds rows and vectors by those of the gradient; the rows of input and output are twice as
    // long.
    unsafe {
        kernel::backward::launch_unchecked::<R>(
            &client,
            walk.cube_count(),
            walk.cube_dim(),
            address_type,
            walk.vector_size,
            input.into_array_arg(),
            gradient.into_array_arg(),
            output.clone().into_array_arg(),
            rows,
            walk.vectors,
            is_fast(&client),
            dtype.into(),
        );
    }
    output
}
