//! Launches the kernels that copy ranges and clear them.

use std::ops::Range;

use burn_backend::cubecl::dtype_to_elem_type;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{BufferRange, RangeTarget, kernel};
use crate::cube::launch::{address_type, empty_beside, own};
use crate::cube::parts::{DeviceParts, Part};
use crate::cube::walk::{UNITS, cube_count};

/// Vectors that a unit copies, where there are enough for all units.
const VECTORS_EACH: usize = 4;

/// Elements to copy: from where, to where, how many.
struct Copied {
    from: usize,
    to: usize,
    count: usize,
}

/// Returns the elements of ranges one after the other.
pub(crate) fn gather(buffers: Vec<CubeTensor>, ranges: &[BufferRange]) -> CubeTensor {
    let count = ranges.iter().map(|range| range.range.len()).sum::<usize>();
    let output = empty_beside(&buffers[0], &[count], buffers[0].dtype);
    let mut to = 0;
    let places: Vec<usize> = ranges
        .iter()
        .map(|range| {
            to += range.range.len();
            to - range.range.len()
        })
        .collect();
    for (number, buffer) in buffers.into_iter().enumerate() {
        let own = ranges.iter().zip(&places).filter(|(range, _)| range.buffer == number);
        let copied = own.map(|(range, &to)| Copied {
            from: range.range.start,
            to,
            count: range.range.len(),
        });
        copy(into_contiguous(buffer), &output, copied.collect());
    }
    output
}

/// Returns the buffer with the values in its ranges, in its own memory if nothing else holds that.
pub(crate) fn scatter(buffer: CubeTensor, values: CubeTensor, targets: &[RangeTarget]) -> CubeTensor {
    let buffer = own(buffer);
    let copied = targets.iter().map(|target| Copied {
        from: target.start,
        to: target.range.start,
        count: target.range.len(),
    });
    copy(into_contiguous(values), &buffer, copied.collect());
    buffer
}

/// Returns the buffer with zeros in the ranges, in its own memory if nothing else holds that.
pub(crate) fn clear(buffer: CubeTensor, ranges: &[Range<usize>]) -> CubeTensor {
    let ranges: Vec<Copied> = ranges
        .iter()
        .filter(|range| !range.is_empty())
        .map(|range| Copied {
            from: range.start,
            to: range.start,
            count: range.len(),
        })
        .collect();
    if ranges.is_empty() {
        return buffer;
    }
    let buffer = own(buffer);
    let (vector_size, table) = plan(&buffer, &ranges);
    // SAFETY: the ranges are in the buffer, and begin and end where vectors do.
    unsafe {
        kernel::clear_parts::launch_unchecked(
            &buffer.client,
            cube_count(&buffer.client, table.cubes()),
            CubeDim::new_1d(UNITS),
            address_type(&[&buffer]),
            vector_size,
            buffer.clone().into_buffer_arg(),
            table.argument(),
            UNITS as usize,
            dtype_to_elem_type(buffer.dtype),
        );
    }
    buffer
}

fn copy(input: CubeTensor, output: &CubeTensor, mut ranges: Vec<Copied>) {
    ranges.retain(|range| range.count > 0);
    if ranges.is_empty() {
        return;
    }
    let client = input.client.clone();
    let (vector_size, table) = plan(&input, &ranges);
    // SAFETY: the ranges are in both buffers, and begin and end where vectors do.
    unsafe {
        kernel::copy_parts::launch_unchecked(
            &client,
            cube_count(&client, table.cubes()),
            CubeDim::new_1d(UNITS),
            address_type(&[&input, output]),
            vector_size,
            input.clone().into_buffer_arg(),
            output.clone().into_buffer_arg(),
            table.argument(),
            UNITS as usize,
            dtype_to_elem_type(input.dtype),
        );
    }
}

/// Returns how many elements a vector has such that ranges begin and end where vectors do, and the ranges as a table.
fn plan(buffer: &CubeTensor, ranges: &[Copied]) -> (usize, DeviceParts) {
    let mut sizes = buffer.client.io_optimized_vector_sizes(buffer.dtype.size());
    let fits = |size: &usize| {
        let mut numbers = ranges.iter().flat_map(|range| [range.from, range.to, range.count]);
        numbers.all(|number| number.is_multiple_of(*size))
    };
    let vector_size = sizes.find(fits).unwrap_or(1);
    let parts = ranges.iter().map(|range| Part {
        start: range.from,
        count: range.count,
        cubes: range.count.div_ceil(vector_size * UNITS as usize * VECTORS_EACH),
        place: range.to,
    });
    (vector_size, DeviceParts::new(&buffer.client, parts))
}
