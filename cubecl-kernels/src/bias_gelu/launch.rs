//! Launches the kernels of bias and GELU, for tensors that have elements.

use burn_cubecl::{CubeRuntime, tensor::CubeTensor};

use super::kernel;
use crate::cube::columns::Partials;
use crate::cube::launch::{address_type, empty_beside, into_contiguous};
use crate::cube::math::is_fast;
use crate::cube::walk::{RowWalk, dims};

/// Returns `gelu(input + bias)`.
pub(crate) fn forward<R: CubeRuntime>(input: CubeTensor<R>, bias: CubeTensor<R>) -> CubeTensor<R> {
    let (input, bias) = (into_contiguous(input), into_contiguous(bias));
    let ([rows, columns], dtype) = (dims(&input), input.dtype);
    let output = empty_beside(&input, &[rows, columns], dtype);
    let walk = RowWalk::over(&input, rows, columns);
    let (client, address_type) = (input.client.clone(), address_type(&[&input]));
    // SAFETY: the kernel bounds rows and vectors by those of input and output; the bias has a row's.
    unsafe {
        kernel::forward::launch_unchecked::<R>(
            &client,
            walk.cube_count(),
            walk.cube_dim(),
            address_type,
            walk.vector_size,
            input.into_array_arg(),
            bias.into_array_arg(),
            output.clone().into_array_arg(),
            rows,
            walk.vectors,
            is_fast(&client),
            dtype.into(),
        );
    }
    output
}

/// Returns the input's gradient for the output's, and the sums of parts of its rows, whose sum is the bias'.
pub(crate) fn backward<R: CubeRuntime>(
    input: CubeTensor<R>,
    bias: CubeTensor<R>,
    gradient: CubeTensor<R>,
) -> (CubeTensor<R>, Partials<R>) {
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
        kernel::backward::launch_unchecked::<R>(
            &client,
            walk.cube_count(),
            walk.cube_dim(),
            address_type,
            walk.vector_size,
            input.into_array_arg(),
            bias.into_array_arg(),
            gradient.into_array_arg(),
            output.clone().into_array_arg(),
            partials.tensor().clone().into_array_arg(),
            rows,
            walk.vectors,
            is_fast(&client),
            dtype.into(),
        );
    }
    (output, partials)
}
