//! The kernels of sums of squares: a number for each cube first, and then their sums.

use cubecl::prelude::*;

use crate::cube::parts::{Parts, is_idle, own_part};
use crate::cube::walk::cube_sum;

/// Vectors that a unit asks for before it waits for any.
const AT_ONCE: usize = 4;

/// Writes each cube's share of its part's sum of squares, from the part's place on. `elements` is `input` one by one:
/// of it only what no vector holds is read.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn squares<F: Float, N: Size>(
    input: &[Vector<F, N>],
    elements: &[F],
    shares: &mut [f32],
    parts: &Parts,
    #[comptime] units: usize,
    #[define(F)] _dtype: ElemType,
) {
    if is_idle(parts) {
        terminate!();
    }
    let part = own_part(parts);
    let own = part.cube * units + UNIT_POS as usize;
    let vectors = part.count / N::value();
    let first = part.start / N::value();
    let mut squares = Vector::<f32, N>::new(f32::new(0.0));
    let step = part.cubes * units;
    let mut at = own;
    while at + comptime!(AT_ONCE - 1) * step < vectors {
        let mut loaded = Array::<Vector<F, N>>::new(AT_ONCE);
        #[unroll]
        for turn in 0..AT_ONCE {
            loaded[turn] = input[first + at + turn * step];
        }
        #[unroll]
        for turn in 0..AT_ONCE {
            let x = Vector::<f32, N>::cast_from(loaded[turn]);
            squares += x * x;
        }
        at += AT_ONCE * step;
    }
    while at < vectors {
        let x = Vector::<f32, N>::cast_from(input[first + at]);
        squares += x * x;
        at += step;
    }
    let mut sum = f32::new(0.0);
    #[unroll]
    for lane in 0..N::value() {
        sum += squares[lane];
    }
    let left = vectors * N::value() + own;
    if left < part.count {
        let x = f32::cast_from(elements[part.start + left]);
        sum += x * x;
    }
    let sum = cube_sum(sum, units);
    if UNIT_POS == 0 {
        shares[part.place + part.cube] = sum;
    }
}

/// Writes the sums of ranges of the shares; a cube for each.
#[cube(launch_unchecked)]
pub(super) fn add_up(shares: &[f32], output: &mut [f32], parts: &Parts, #[comptime] units: usize) {
    if is_idle(parts) {
        terminate!();
    }
    let part = own_part(parts);
    let mut sum = f32::new(0.0);
    let mut at = UNIT_POS as usize;
    while at < part.count {
        sum += shares[part.start + at];
        at += units;
    }
    let sum = cube_sum(sum, units);
    if UNIT_POS == 0 {
        output[part.place] = sum;
    }
}
