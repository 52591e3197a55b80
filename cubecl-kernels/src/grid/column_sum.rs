//! The second half of sums over rows: adds up what the parts of a [`RowWalk`](super::RowWalk) have found.

use burn::tensor::DType;
use burn_cubecl::{CubeRuntime, tensor::CubeTensor};
use cubecl::prelude::*;

use super::launch::{address_type, empty};

/// Columns of a cube.
const WIDE: u32 = 32;
/// Units that share a column.
const HIGH: u32 = 16;

/// Returns the sums over the parts, in `dtype`.
///
/// # Shapes
/// - `partials`: `[parts, columns]`, f32
/// - output: `[columns]`
pub(crate) fn column_sum<R: CubeRuntime>(partials: CubeTensor<R>, parts: usize, dtype: DType) -> CubeTensor<R> {
    let columns = partials.meta.shape()[1];
    let output = empty(&partials, [columns], dtype);
    let (client, address_type) = (partials.client.clone(), address_type(&[&partials]));
    // SAFETY: the kernel bounds parts and columns by those of the partial sums, and the output has the columns.
    unsafe {
        add_up::launch_unchecked::<R>(
            &client,
            CubeCount::new_1d((columns as u32).div_ceil(WIDE)),
            CubeDim::new_2d(WIDE, HIGH),
            address_type,
            partials.into_array_arg(),
            output.clone().into_array_arg(),
            parts,
            columns,
            dtype.into(),
        );
    }
    output
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn add_up<F: Float>(
    partials: &Array<f32>,
    output: &mut Array<F>,
    parts: usize,
    columns: usize,
    #[define(F)] _dtype: StorageType,
) {
    let column = (CUBE_POS_X * CUBE_DIM_X + UNIT_POS_X) as usize;
    let mut sum = f32::new(0.0);
    if column < columns {
        let mut part = UNIT_POS_Y as usize;
        while part < parts {
            sum += partials[part * columns + column];
            part += CUBE_DIM_Y as usize;
        }
    }
    let mut sums = SharedMemory::<f32>::new(comptime!((WIDE * HIGH) as usize));
    sums[UNIT_POS as usize] = sum;
    sync_cube();
    if UNIT_POS_Y == 0 && column < columns {
        let mut total = f32::new(0.0);
        for unit in 0..CUBE_DIM_Y {
            total += sums[(unit * CUBE_DIM_X + UNIT_POS_X) as usize];
        }
        output[column] = F::cast_from(total);
    }
}
