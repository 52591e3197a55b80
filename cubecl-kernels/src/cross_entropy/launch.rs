//! Launches the kernels of the cross-entropy.

use burn::tensor::DType;
use burn_backend::cubecl::dtype_to_elem_type;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::kernel;
use crate::cube::launch::{address_type, empty_beside, vector_size};
use crate::cube::math::is_fast;
use crate::cube::walk::{RowWalk, UNITS, cube_count, dims};

/// Returns each row's maximum, sum and target's logit.
pub(crate) fn statistics(logits: CubeTensor, targets: CubeTensor, valid: usize) -> [CubeTensor; 3] {
    let [logits, targets] = [logits, targets].map(into_contiguous);
    let ([rows, columns], dtypes) = (dims(&logits), [logits.dtype, targets.dtype].map(dtype_to_elem_type));
    let [maximum, sum, target] = [(); 3].map(|()| empty_beside(&logits, &[rows], DType::F32));
    let vector_size = vector_size(&logits.client, logits.dtype, columns);
    let (client, address_type) = (logits.client.clone(), address_type(&[&logits]));
    // SAFETY: the kernel bounds rows by those of everything, and columns by the valid ones, which are in the logits.
    unsafe {
        kernel::statistics::launch_unchecked(
            &client,
            cube_count(&client, rows),
            CubeDim::new_1d(UNITS),
            address_type,
            vector_size,
            logits.into_buffer_arg(),
            targets.into_buffer_arg(),
            maximum.clone().into_buffer_arg(),
            sum.clone().into_buffer_arg(),
            target.clone().into_buffer_arg(),
            rows,
            columns / vector_size,
            valid,
            f32::NEG_INFINITY,
            UNITS as usize,
            is_fast(&client),
            dtypes,
        );
    }
    [maximum, sum, target]
}

/// Returns the logits' gradient for that of the rows' losses, in the logits' own memory if nothing else holds them.
pub(crate) fn backward(logits: CubeTensor, targets: CubeTensor, valid: usize, of_rows: [CubeTensor; 3]) -> CubeTensor {
    let [logits, targets] = [logits, targets].map(into_contiguous);
    let [maximum, sum, gradient] = of_rows.map(into_contiguous);
    let ([rows, columns], dtypes) = (dims(&logits), [logits.dtype, targets.dtype].map(dtype_to_elem_type));
    let is_ours = logits.can_mut();
    let walk = RowWalk::over(&logits, rows, columns);
    let (client, address_type) = (logits.client.clone(), address_type(&[&logits]));
    let (output, argument) = if is_ours {
        (logits.clone(), logits.as_tensor_alias(0).into_buffer_arg())
    } else {
        let output = empty_beside(&logits, &[rows, columns], logits.dtype);
        (output.clone(), output.into_buffer_arg())
    };
    // SAFETY: the kernel bounds rows and vectors by those of logits and output, and the others have that many rows.
    // Each unit reads what it writes before it does, and nothing else of it.
    unsafe {
        kernel::backward::launch_unchecked(
            &client,
            walk.cube_count(),
            walk.cube_dim(),
            address_type,
            walk.vector_size,
            logits.into_buffer_arg(),
            targets.into_buffer_arg(),
            maximum.into_buffer_arg(),
            sum.into_buffer_arg(),
            gradient.into_buffer_arg(),
            argument,
            rows,
            walk.vectors,
            valid,
            is_fast(&client),
            dtypes,
        );
    }
    output
}
