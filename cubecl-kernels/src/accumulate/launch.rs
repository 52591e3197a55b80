//! Launches the kernel of the sums.

use burn::tensor::DType;
use burn_backend::cubecl::dtype_to_elem_type;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{GradientPlace, kernel};
use crate::cube::launch::{address_type, own};
use crate::cube::walk::{UNITS, cube_count};

/// Returns the sums and what is not finite, each in its own memory if nothing else holds that.
pub(super) fn add(sums: [CubeTensor; 2], gradient: CubeTensor, place: GradientPlace) -> [CubeTensor; 2] {
    let count = gradient.meta.shape()[0];
    let gradient = into_contiguous(gradient);
    let [sums, non_finite] = sums.map(own);
    let client = gradient.client.clone();
    // Places begin where vectors do, or there are no vectors.
    let mut sizes = client.io_optimized_vector_sizes(DType::F32.size());
    let vector_size = sizes.find(|size| place.offset.is_multiple_of(*size)).unwrap_or(1);
    let vectors = count / vector_size;
    for (size, first, end) in [(vector_size, 0, vectors), (1, vectors * vector_size, count)] {
        if first == end {
            continue;
        }
        // SAFETY: the kernel bounds its index by `end`, and the place is within the sums. Each unit writes what it
        // reads.
        unsafe {
            kernel::add::launch_unchecked(
                &client,
                cube_count(&client, (end - first).div_ceil(UNITS as usize * kernel::AT_ONCE)),
                CubeDim::new_1d(UNITS),
                address_type(&[&sums, &gradient]),
                size,
                gradient.clone().into_buffer_arg(),
                sums.clone().into_buffer_arg(),
                non_finite.clone().into_buffer_arg(),
                place.offset / size,
                first,
                end,
                place.parameter,
                place.is_first,
                dtype_to_elem_type(gradient.dtype),
            );
        }
    }
    [sums, non_finite]
}
