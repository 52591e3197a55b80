//! The kernel of the sums: one pass over the gradient and its place.

use cubecl::prelude::*;

/// Adds the gradient's vectors from `first` up to `end` to the sums, whose vectors begin `offset` ahead.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn add<G: Float, N: Size>(
    gradient: &Array<Vector<G, N>>,
    sums: &mut Array<Vector<f32, N>>,
    non_finite: &mut Array<f32>,
    offset: usize,
    first: usize,
    end: usize,
    parameter: usize,
    #[comptime] is_first: bool,
    #[define(G)] _dtype: StorageType,
) {
    let at = first + ABSOLUTE_POS;
    if at >= end {
        terminate!();
    }
    let gradient = Vector::<f32, N>::cast_from(gradient[at]);
    let mut is_finite = true;
    #[unroll]
    for lane in 0..N::value() {
        // Neither holds for what is not a number.
        is_finite = is_finite && f32::abs(gradient[lane]) <= f32::max_value();
    }
    if !is_finite {
        // Whoever else writes there writes the same.
        non_finite[parameter] = f32::new(1.0);
    }
    if comptime!(is_first) {
        sums[offset + at] = gradient;
    } else {
        sums[offset + at] += gradient;
    }
}
