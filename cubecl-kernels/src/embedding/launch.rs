//! Launches the kernels of embeddings.

use burn_backend::cubecl::dtype_to_elem_type;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{AddRows, TokenRange, kernel};
use crate::cube::launch::{address_type, empty_beside, own};
use crate::cube::walk::{RowWalk, UNITS, cube_count, dims};

pub(crate) fn rows(table: CubeTensor, tokens: CubeTensor, range: TokenRange) -> CubeTensor {
    let [table, tokens] = [table, tokens].map(into_contiguous);
    let (num_tokens, [rows, columns]) = (tokens.meta.shape()[0], dims(&table));
    let output = empty_beside(&table, &[num_tokens, columns], table.dtype);
    let walk = RowWalk::over(&output, num_tokens, columns);
    let dtypes = [table.dtype, tokens.dtype].map(dtype_to_elem_type);
    // SAFETY: the kernel bounds tokens and vectors by those of the output, and rows by the range, which the table has.
    unsafe {
        kernel::rows::launch_unchecked(
            &output.client.clone(),
            walk.cube_count(),
            walk.cube_dim(),
            address_type(&[&table, &output]),
            walk.vector_size,
            table.into_buffer_arg(),
            tokens.into_buffer_arg(),
            output.clone().into_buffer_arg(),
            num_tokens,
            walk.vectors,
            range.first,
            range.count.min(rows),
            dtypes,
        );
    }
    output
}

/// Returns the sums with each token's gradient added to its row, in their own memory if nothing else holds that.
pub(crate) fn add_rows(
    sums: CubeTensor,
    tokens: CubeTensor,
    gradient: CubeTensor,
    &AddRows { offset, range }: &AddRows,
) -> CubeTensor {
    let [num_tokens, columns] = dims(&gradient);
    let (sums, tokens, gradient) = (own(sums), into_contiguous(tokens), into_contiguous(gradient));
    let client = sums.client.clone();
    let mut sizes = client.io_optimized_vector_sizes(sums.dtype.size().max(gradient.dtype.size()));
    let fits = |size: &usize| columns.is_multiple_of(*size) && offset.is_multiple_of(*size);
    let vector_size = sizes.find(fits).unwrap_or(1);
    let vectors = columns / vector_size;
    let most = client.properties().hardware.max_units_per_cube.min(UNITS);
    let units = vectors.next_power_of_two().clamp(32, (most as usize).max(32));
    let parts = vectors.div_ceil(units);
    let dtypes = [sums.dtype, gradient.dtype, tokens.dtype].map(dtype_to_elem_type);
    // SAFETY: the kernel bounds positions by the tokens, vectors by those of a row, and rows by the range, which fits
    // in the sums. Each vector of the sums is read and written by one unit.
    unsafe {
        kernel::add_rows::launch_unchecked(
            &client,
            cube_count(&client, num_tokens * parts),
            CubeDim::new_1d(units as u32),
            address_type(&[&sums, &gradient]),
            vector_size,
            tokens.into_buffer_arg(),
            gradient.into_buffer_arg(),
            sums.clone().into_buffer_arg(),
            num_tokens,
            vectors,
            parts,
            offset / vector_size,
            range.first,
            range.count,
            units,
            dtypes,
        );
    }
    sums
}
