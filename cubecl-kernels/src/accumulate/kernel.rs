//! The kernel of the sums: one pass over the gradient and its place.

use cubecl::prelude::*;

use crate::cube::walk::UNITS;

/// Vectors that a unit asks for before it waits for any.
pub(super) const AT_ONCE: usize = 4;

/// Adds the gradient's vectors from `first` up to `end` to the sums, whose vectors begin `offset` ahead.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn add<G: Float, N: Size>(
    gradient: &[Vector<G, N>],
    sums: &mut [Vector<f32, N>],
    non_finite: &mut [f32],
    offset: usize,
    first: usize,
    end: usize,
    parameter: usize,
    #[comptime] is_first: bool,
    #[define(G)] _dtype: ElemType,
) {
    let units = comptime!(UNITS as usize);
    let start = first + CUBE_POS * comptime!(AT_ONCE * UNITS as usize) + UNIT_POS as usize;
    let mut gradients = Array::<Vector<G, N>>::new(AT_ONCE);
    let mut before = Array::<Vector<f32, N>>::new(comptime!(if is_first { 1 } else { AT_ONCE }));
    #[unroll]
    for turn in 0..AT_ONCE {
        let at = start + turn * units;
        if at < end {
            gradients[turn] = gradient[at];
            if comptime!(!is_first) {
                before[turn] = sums[offset + at];
            }
        }
    }
    let mut is_finite = true;
    #[unroll]
    for turn in 0..AT_ONCE {
        let at = start + turn * units;
        if at < end {
            let mut sum = Vector::<f32, N>::cast_from(gradients[turn]);
            #[unroll]
            for lane in 0..N::value() {
                // Does not hold for what is not a number.
                is_finite = is_finite && f32::abs(sum.extract(lane)) <= f32::max_value();
            }
            if comptime!(!is_first) {
                sum += before[turn];
            }
            sums[offset + at] = sum;
        }
    }
    if !is_finite {
        // Whoever else writes there writes the same.
        non_finite[parameter] = f32::new(1.0);
    }
}
