//! The reductions over the units of a row, by planes and by halves, for cubes of several sizes.

use anyhow::ensure;
use cubecl::Device;
use cubecl::prelude::*;
use cubecl_kernels::cube::reduce::{RowLayout, row_max, row_sum, row_sums};
use libtest_mimic::Trial;

use crate::support::compare::normal;
use crate::support::setting::plain;

pub fn trials() -> Vec<Trial> {
    vec![plain(
        "cuda::reductions_are_those_of_the_host",
        reductions_are_those_of_the_host,
    )]
}

/// Writes for each unit the sum, that of doubled and of negated numbers, and the maximum.
#[cube(launch)]
fn reduce(input: &[f32], output: &mut [f32], #[comptime] layout: RowLayout) {
    let unit = UNIT_POS as usize;
    let value = input[unit];
    let sum = row_sum(value, layout);
    let (doubled, negated) = row_sums(2.0f32 * value, -value, 0usize, layout);
    output[4 * unit] = sum;
    output[4 * unit + 1] = doubled;
    output[4 * unit + 2] = negated;
    output[4 * unit + 3] = row_max(value, layout);
}

fn reductions_are_those_of_the_host() -> anyhow::Result<()> {
    let client = Device::Cuda(Default::default()).client();
    let hardware = client.properties().hardware.clone();
    let smallest_plane = hardware.plane_size_min.max(1) as usize;
    for units in [1usize, 8, 32, 256] {
        for has_planes in [false, true] {
            if units > hardware.max_units_per_cube as usize {
                continue;
            }
            let layout = RowLayout {
                slots: 1,
                units,
                rows: 1,
                is_unrolled: true,
                has_planes,
                parts: if has_planes {
                    units.div_ceil(smallest_plane)
                } else {
                    units
                },
            };
            // Whole numbers, of which sums are exact in any order; all below 0, so that no maximum is 0 by accident.
            let inputs: Vec<f32> = normal(units, 3)
                .iter()
                .map(|x| (10.0 * x).round() as f32 - 100.0)
                .collect();
            let input = client.create_from_slice(bytemuck::cast_slice(&inputs));
            let output = client.empty(4 * units * size_of::<f32>());
            // SAFETY: the buffers have these counts of numbers.
            let [input, results] = unsafe {
                [
                    BufferArg::from_raw_parts(input, units),
                    BufferArg::from_raw_parts(output.clone(), 4 * units),
                ]
            };
            let dim = CubeDim::new_1d(units as u32);
            reduce::launch(&client, CubeCount::new_single(), dim, input, results, layout);
            let bytes = client.read_one(output).map_err(|error| anyhow::anyhow!("{error:?}"))?;
            let sum: f32 = inputs.iter().sum();
            let maximum = inputs.iter().copied().fold(f32::MIN, f32::max);
            let expected = [sum, 2.0 * sum, -sum, maximum];
            for (unit, found) in bytemuck::cast_slice::<u8, f32>(&bytes).chunks_exact(4).enumerate() {
                ensure!(
                    found == expected,
                    "{layout:?}: unit {unit} of {units} has {found:?}, expected {expected:?}"
                );
            }
        }
    }
    Ok(())
}
