//! Launches the kernels of the sum of squares: one for each buffer that is not empty, and one for all.

use burn::tensor::DType;
use burn_cubecl::{CubeRuntime, tensor::CubeTensor};
use cubecl::prelude::*;

use super::kernel;
use crate::cube::launch::{address_type, empty_beside, into_contiguous};
use crate::cube::walk::{UNITS, resident_cubes};

/// Vectors that a unit reads at least, where there are enough.
const VECTORS_EACH: usize = 4;

/// Returns the sum over all buffers, `[1]` of f32.
pub(crate) fn sum_of_squares<R: CubeRuntime>(buffers: Vec<CubeTensor<R>>) -> CubeTensor<R> {
    let first = &buffers[0].clone();
    let client = first.client.clone();
    let units = UNITS as usize;
    // The kernel has so few registers that twice the resident cubes run at once; more would be parts to add up.
    let most = 2 * resident_cubes(&client, UNITS);
    let largest = client.io_optimized_vector_sizes(first.dtype.size()).next();
    let vector_size = largest.unwrap_or(1);
    let plans: Vec<(CubeTensor<R>, usize, usize)> = buffers
        .into_iter()
        .map(into_contiguous)
        .scan(0, |offset, buffer| {
            let count = buffer.meta.shape()[0];
            let wanted = (count / vector_size).div_ceil(units * VECTORS_EACH);
            let cubes = if count == 0 { 0 } else { wanted.clamp(1, most) };
            *offset += cubes;
            Some((buffer, *offset - cubes, cubes))
        })
        .collect();
    let parts: usize = plans.iter().map(|(_, _, cubes)| cubes).sum();
    // A buffer of no bytes cannot be bound.
    let partials = empty_beside(first, &[parts.max(1)], DType::F32);
    for (buffer, offset, cubes) in plans {
        if cubes == 0 {
            continue;
        }
        let count = buffer.meta.shape()[0];
        // SAFETY: the kernel bounds vectors and elements by the buffer's, and each cube writes one of the parts that
        // are counted above.
        unsafe {
            kernel::squares::launch_unchecked::<R>(
                &client,
                CubeCount::new_1d(cubes as u32),
                CubeDim::new_1d(UNITS),
                address_type(&[&buffer]),
                vector_size,
                buffer.clone().into_array_arg(),
                buffer.clone().into_array_arg(),
                partials.clone().into_array_arg(),
                offset,
                count / vector_size,
                count,
                units,
                buffer.dtype.into(),
            );
        }
    }
    let output = empty_beside(first, &[1], DType::F32);
    // SAFETY: the kernel bounds its index by the number of parts, and writes one element.
    unsafe {
        kernel::add_up::launch_unchecked::<R>(
            &client,
            CubeCount::new_single(),
            CubeDim::new_1d(UNITS),
            partials.into_array_arg(),
            output.clone().into_array_arg(),
            parts as u32,
            units,
        );
    }
    output
}
