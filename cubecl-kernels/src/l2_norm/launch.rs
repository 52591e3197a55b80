//! Launches the kernels of sums of squares: one for each buffer of which something is added up, and one for all.

use burn::tensor::DType;
use burn_backend::cubecl::dtype_to_elem_type;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubecl::prelude::*;

use super::{SquaredPart, kernel};
use crate::cube::launch::{address_type, empty_beside};
use crate::cube::parts::{DeviceParts, Part};
use crate::cube::walk::{UNITS, cube_count, resident_cubes};

/// Vectors that a unit reads at least, where there are enough.
const VECTORS_EACH: usize = 4;

/// A part, with its shares of the sum.
struct SharedPart<'a> {
    part: &'a SquaredPart,
    /// The first of its shares, of which there is one for each cube.
    place: usize,
    cubes: usize,
}

/// Returns the sums over parts of buffers, `[sums]` of f32.
pub(crate) fn sums_of_squares(buffers: Vec<CubeTensor>, parts: &[SquaredPart], sums: usize) -> CubeTensor {
    let first = buffers[0].clone();
    let output = empty_beside(&first, &[sums], DType::F32);
    if sums == 0 {
        return output;
    }
    let client = first.client.clone();
    let largest = client.io_optimized_vector_sizes(first.dtype.size()).next();
    let (parts, ranges) = shared(&client, largest.unwrap_or(1), parts, sums);
    let num_shares = ranges.iter().map(|range| range.count).sum::<usize>();
    // A buffer of no bytes cannot be bound.
    let shares = empty_beside(&first, &[num_shares.max(1)], DType::F32);
    for (number, buffer) in buffers.into_iter().enumerate() {
        let own: Vec<&SharedPart<'_>> = parts.iter().filter(|part| part.part.buffer == number).collect();
        square(into_contiguous(buffer), &own, &shares);
    }
    let table = DeviceParts::new(&client, ranges);
    // SAFETY: the ranges are those of the shares, and each cube writes one of the sums.
    unsafe {
        kernel::add_up::launch_unchecked(
            &client,
            cube_count(&client, table.cubes()),
            CubeDim::new_1d(UNITS),
            shares.into_buffer_arg(),
            output.clone().into_buffer_arg(),
            table.argument(),
            UNITS as usize,
        );
    }
    output
}

/// Gives each part that is not empty its cubes and its place among the shares, those of a sum next to each other; also
/// returns the range of shares of each sum.
fn shared<'a>(
    client: &Client,
    vector_size: usize,
    parts: &'a [SquaredPart],
    sums: usize,
) -> (Vec<SharedPart<'a>>, Vec<Part>) {
    // The kernel has so few registers that twice the resident cubes run at once; more would be shares to add up.
    let most = 2 * resident_cubes(client, UNITS);
    let (mut shared, mut ranges, mut place) = (Vec::with_capacity(parts.len()), Vec::with_capacity(sums), 0);
    let mut of_sums: Vec<Vec<&SquaredPart>> = vec![Vec::new(); sums];
    for part in parts.iter().filter(|part| !part.range.is_empty()) {
        of_sums[part.sum].push(part);
    }
    for (sum, parts) in of_sums.into_iter().enumerate() {
        let start = place;
        for part in parts {
            let wanted = (part.range.len() / vector_size).div_ceil(UNITS as usize * VECTORS_EACH);
            let cubes = wanted.clamp(1, most);
            shared.push(SharedPart { part, place, cubes });
            place += cubes;
        }
        ranges.push(Part {
            start,
            count: place - start,
            cubes: 1,
            place: sum,
        });
    }
    (shared, ranges)
}

/// Writes the shares of a buffer's parts: of those where a vector begins by vectors, of the others number by number. So
/// a sum does not depend on the parts next to its own.
fn square(buffer: CubeTensor, parts: &[&SharedPart<'_>], shares: &CubeTensor) {
    let largest = buffer.client.io_optimized_vector_sizes(buffer.dtype.size()).next();
    let largest = largest.unwrap_or(1);
    let (aligned, others): (Vec<_>, Vec<_>) = parts
        .iter()
        .partition(|part| part.part.range.start.is_multiple_of(largest));
    square_in_vectors(buffer.clone(), &aligned, shares, largest);
    square_in_vectors(buffer, &others, shares, 1);
}

fn square_in_vectors(buffer: CubeTensor, parts: &[&SharedPart<'_>], shares: &CubeTensor, vector_size: usize) {
    if parts.is_empty() {
        return;
    }
    let client = buffer.client.clone();
    let table = DeviceParts::new(
        &client,
        parts.iter().map(|part| Part {
            start: part.part.range.start,
            count: part.part.range.len(),
            cubes: part.cubes,
            place: part.place,
        }),
    );
    // SAFETY: the kernel bounds vectors and elements by the parts, which are in the buffer, and each cube writes the
    // share that is counted for it.
    unsafe {
        kernel::squares::launch_unchecked(
            &client,
            cube_count(&client, table.cubes()),
            CubeDim::new_1d(UNITS),
            address_type(&[&buffer]),
            vector_size,
            buffer.clone().into_buffer_arg(),
            buffer.clone().into_buffer_arg(),
            shares.clone().into_buffer_arg(),
            table.argument(),
            UNITS as usize,
            dtype_to_elem_type(buffer.dtype),
        );
    }
}
