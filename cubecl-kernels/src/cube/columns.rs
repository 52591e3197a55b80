//! The second half of sums over a tensor's rows: kernels that pass over the rows leave the sums of some of them each,
//! and the kernel here adds these up. The order is fixed, so that the same inputs give the same sums.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use cubecl::server::CubeCountSelection;

use super::launch::{address_type, empty_beside};

/// Columns of a cube.
const WIDTH: usize = 32;
/// Units that share a column.
const HEIGHT: usize = 8;

/// Returns the sums of the columns of `[count, columns]` partial sums in f32, as `[columns]` in `dtype`.
pub fn sum_partials<R: CubeRuntime>(partials: CubeTensor<R>, dtype: DType) -> CubeTensor<R> {
    let (count, columns) = (partials.meta.shape()[0], partials.meta.shape()[1]);
    let client = partials.client.clone();
    let output = empty_beside(&partials, &[columns], dtype);
    let cubes = CubeCountSelection::new(&client, columns.div_ceil(WIDTH) as u32).cube_count();
    // SAFETY: the kernel bounds what it reads and writes by both dimensions.
    unsafe {
        sum_columns::launch_unchecked::<R>(
            &client,
            cubes,
            CubeDim::new_2d(WIDTH as u32, HEIGHT as u32),
            address_type(&[&partials]),
            partials.into_tensor_arg(),
            output.clone().into_tensor_arg(),
            count,
            columns,
            dtype.into(),
        );
    }
    output
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn sum_columns<E: Float>(
    partials: &Tensor<f32>,
    output: &mut Tensor<E>,
    count: usize,
    columns: usize,
    #[define(E)] _type: StorageType,
) {
    let (width, height) = comptime!((WIDTH, HEIGHT));
    let column = CUBE_POS * width + UNIT_POS_X as usize;
    let mut sum = 0.0f32;
    if column < columns {
        let mut partial = UNIT_POS_Y as usize;
        while partial < count {
            sum += partials[partial * columns + column];
            partial += height;
        }
    }
    let mut sums = SharedMemory::<f32>::new(comptime!(WIDTH * HEIGHT));
    sums[UNIT_POS as usize] = sum;
    sync_cube();
    if UNIT_POS_Y == 0 && column < columns {
        let mut total = sums[UNIT_POS_X as usize];
        #[unroll]
        for share in 1..height {
            total += sums[share * width + UNIT_POS_X as usize];
        }
        output[column] = E::cast_from(total);
    }
}
