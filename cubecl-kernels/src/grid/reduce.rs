//! Device functions: the sum over a cube, and the logistic function.

use cubecl::prelude::*;

/// The sum over the units of a one-dimensional cube, whose number is `units`, a power of two; right in unit 0.
///
/// A tree, so that the order is always the same, and nothing depends on the size of planes.
#[cube]
pub(crate) fn cube_sum(value: f32, #[comptime] units: usize) -> f32 {
    let mut sums = SharedMemory::<f32>::new(units);
    let unit = UNIT_POS as usize;
    sums[unit] = value;
    sync_cube();
    let mut width = CUBE_DIM_X as usize / 2;
    while width > 0 {
        if unit < width {
            sums[unit] += sums[unit + width];
        }
        sync_cube();
        width /= 2;
    }
    sums[0]
}

/// `1 / (1 + exp(−x))`. Arguments are bounded, so that nothing overflows; beyond the bound it is 1, or below 2^-115.
#[cube]
pub(crate) fn sigmoid<N: Size>(x: Vector<f32, N>) -> Vector<f32, N> {
    let one = Vector::<f32, N>::new(f32::new(1.0));
    let bound = Vector::<f32, N>::new(f32::new(80.0));
    let zero = Vector::<f32, N>::new(f32::new(0.0));
    let x = max(min(x, bound), zero - bound);
    one / (one + Vector::exp(zero - x))
}
