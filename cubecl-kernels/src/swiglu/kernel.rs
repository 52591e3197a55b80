//! The kernels of SwiGLU: rows of `2 * vectors` vectors, the gate's first.

use cubecl::prelude::*;

use crate::cube::walk::{first_row, own_column, row_step, sigmoid};

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
        let gate = Vector::<f32, N>::cast_from(input[at]);
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
        let gate = Vector::<f32, N>::cast_from(input[at]);
        let up = Vector::<f32, N>::cast_from(input[at + vectors]);
        let gradient = Vector::<f32, N>::cast_from(gradient[row * vectors + column]);
        let share = sigmoid::<N>(gate);
        let silu = share * gate;
        // silu' = s + x s (1 − s)
        output[at] = Vector::cast_from(gradient * up * (share + silu * (one - share)));
        output[at + vectors] = Vector::cast_from(gradient * silu);
        row += row_step();
    }
}
