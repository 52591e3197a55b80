//! The kernels of SwiGLU: rows of `2 * vectors` vectors, the gate's first.

use cubecl::prelude::*;

use super::FAR;
use crate::cube::math::{at_least, at_most, exponent_scale, over_one_plus_exp, times_rest};
use crate::cube::walk::{first_row, own_column, row_step};

/// Writes `silu(gate) ∘ up`.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn forward<F: Float, N: Size>(
    input: &Array<Vector<F, N>>,
    output: &mut Array<Vector<F, N>>,
    rows: usize,
    vectors: usize,
    #[comptime] is_fast: bool,
    #[define(F)] _dtype: StorageType,
) {
    let column = own_column();
    if column >= vectors {
        terminate!();
    }
    let mut row = first_row();
    while row < rows {
        let at = 2 * row * vectors + column;
        let gate = input[at];
        let up = input[at + vectors];
        let gate = low::<N>(Vector::cast_from(gate));
        let silu = over_one_plus_exp::<N>(gate, falling::<N>(gate, is_fast), is_fast);
        output[row * vectors + column] = Vector::cast_from(silu * Vector::<f32, N>::cast_from(up));
        row += row_step();
    }
}

/// Writes the input's gradient.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn backward<F: Float, N: Size>(
    input: &Array<Vector<F, N>>,
    gradient: &Array<Vector<F, N>>,
    output: &mut Array<Vector<F, N>>,
    rows: usize,
    vectors: usize,
    #[comptime] is_fast: bool,
    #[define(F)] _dtype: StorageType,
) {
    let column = own_column();
    if column >= vectors {
        terminate!();
    }
    let one = Vector::<f32, N>::new(f32::new(1.0));
    let mut row = first_row();
    while row < rows {
        let at = 2 * row * vectors + column;
        let gate = input[at];
        let up = input[at + vectors];
        let gradient = gradient[row * vectors + column];
        let gate = low::<N>(Vector::cast_from(gate));
        let up = Vector::<f32, N>::cast_from(up);
        let gradient = Vector::<f32, N>::cast_from(gradient);
        let share = over_one_plus_exp::<N>(one, falling::<N>(gate, is_fast), is_fast);
        let silu = share * gate;
        // silu' = s + x s (1 − s), where 1 − s is 0 of an x that is not near.
        let near = at_most::<N>(gate, comptime!(FAR as f32).runtime());
        let derivative = fma(times_rest::<N>(near, share), share, share);
        output[at] = Vector::cast_from(gradient * up * derivative);
        output[at + vectors] = Vector::cast_from(gradient * silu);
        row += row_step();
    }
}

/// The gate, not lower than `-FAR`, so that the share of −∞, 0, makes `silu` 0.
#[cube]
fn low<N: Size>(gate: Vector<f32, N>) -> Vector<f32, N> {
    at_least::<N>(gate, comptime!(-(FAR as f32)).runtime())
}

/// `−gate`, scaled for [`over_one_plus_exp`].
#[cube]
fn falling<N: Size>(gate: Vector<f32, N>, #[comptime] is_fast: bool) -> Vector<f32, N> {
    gate * Vector::new(f32::new(comptime!(-exponent_scale(is_fast))))
}
