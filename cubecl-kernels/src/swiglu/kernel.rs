//! The kernels of SwiGLU: rows of `2 * vectors` vectors, the gate's first.

use cubecl::prelude::*;

use super::FAR;
use crate::cube::walk::{at_least, at_most, first_row, own_column, row_step, sigmoid};

/// Writes `silu(gate) ∘ up`.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn forward<F: Float, N: Size>(
    input: &Array<Vector<F, N>>,
    output: &mut Array<Vector<F, N>>,
    rows: usize,
    vectors: usize,
    #[define(F)] _dtype: StorageType,
) {
    let column = own_column();
    if column >= vectors {
        terminate!();
    }
    let mut row = first_row();
    while row < rows {
        let at = 2 * row * vectors + column;
        let gate = low::<N>(Vector::cast_from(input[at]));
        let up = Vector::<f32, N>::cast_from(input[at + vectors]);
        output[row * vectors + column] = Vector::cast_from(gate * sigmoid::<N>(gate) * up);
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
        let gate = low::<N>(Vector::cast_from(input[at]));
        let up = Vector::<f32, N>::cast_from(input[at + vectors]);
        let gradient = Vector::<f32, N>::cast_from(gradient[row * vectors + column]);
        let share = sigmoid::<N>(gate);
        let silu = share * gate;
        // silu' = s + x s (1 − s), where 1 − s is 0 of an x that is not near.
        let near = at_most::<N>(gate, comptime!(FAR as f32).runtime());
        output[at] = Vector::cast_from(gradient * up * (share + near * share * (one - share)));
        output[at + vectors] = Vector::cast_from(gradient * silu);
        row += row_step();
    }
}

/// The gate, not lower than `-FAR`, so that the share of −∞, 0, makes `silu` 0.
#[cube]
fn low<N: Size>(gate: Vector<f32, N>) -> Vector<f32, N> {
    at_least::<N>(gate, comptime!(-(FAR as f32)).runtime())
}
