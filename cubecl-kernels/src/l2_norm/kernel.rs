//! The kernels of the sum of squares: a number for each cube first, and then their sum.

use cubecl::prelude::*;

use crate::cube::walk::cube_sum;

/// Writes each cube's part of the sum of squares, from `offset` on. `elements` is `input` one by one, of which only
/// what no vector holds is read.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn squares<F: Float, N: Size>(
    input: &Array<Vector<F, N>>,
    elements: &Array<F>,
    partials: &mut Array<f32>,
    offset: usize,
    vectors: usize,
    count: usize,
    #[comptime] units: usize,
    #[define(F)] _dtype: StorageType,
) {
    let mut squares = Vector::<f32, N>::new(f32::new(0.0));
    let mut at = ABSOLUTE_POS;
    while at < vectors {
        let x = Vector::<f32, N>::cast_from(input[at]);
        squares += x * x;
        at += CUBE_COUNT * units;
    }
    let mut sum = f32::new(0.0);
    #[unroll]
    for lane in 0..N::value() {
        sum += squares[lane];
    }
    let left = vectors * N::value() + ABSOLUTE_POS;
    if left < count {
        let x = f32::cast_from(elements[left]);
        sum += x * x;
    }
    let sum = cube_sum(sum, units);
    if UNIT_POS == 0 {
        partials[offset + CUBE_POS] = sum;
    }
}

/// Writes the sum of the parts; one cube.
#[cube(launch_unchecked)]
pub(super) fn add_up(partials: &Array<f32>, output: &mut Array<f32>, count: u32, #[comptime] units: usize) {
    let mut sum = f32::new(0.0);
    let mut at = UNIT_POS;
    while at < count {
        sum += partials[at as usize];
        at += comptime!(units as u32);
    }
    let sum = cube_sum(sum, units);
    if UNIT_POS == 0 {
        output[0] = sum;
    }
}
