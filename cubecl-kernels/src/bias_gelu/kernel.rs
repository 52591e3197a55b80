//! The kernels of bias and GELU.
//!
//! As in the reference, `x · sigmoid(2u)` with `u` the argument of tanh, computed for arguments within [`FAR`].

use cubecl::prelude::*;

use super::FAR;
use crate::cube::walk::{at_least, at_most, first_row, own_column, row_step, sigmoid};

/// `2 √(2/π)`
const SLOPE: f32 = super::SLOPE as f32;
/// `0.044715 · 2 √(2/π)`
const CUBE: f32 = (super::CUBE * super::SLOPE) as f32;

/// Writes `gelu(input + bias)`.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn forward<F: Float, N: Size>(
    input: &Array<Vector<F, N>>,
    bias: &Array<Vector<F, N>>,
    output: &mut Array<Vector<F, N>>,
    rows: usize,
    vectors: usize,
    #[define(F)] _dtype: StorageType,
) {
    let column = own_column();
    if column >= vectors {
        terminate!();
    }
    let bias = Vector::<f32, N>::cast_from(bias[column]);
    let mut row = first_row();
    while row < rows {
        let at = row * vectors + column;
        // Not lower, so that the share of −∞, 0, makes it 0.
        let x = at_least::<N>(
            Vector::<f32, N>::cast_from(input[at]) + bias,
            comptime!(-(FAR as f32)).runtime(),
        );
        let near = at_most::<N>(x, comptime!(FAR as f32).runtime());
        output[at] = Vector::cast_from(x * share::<N>(near, near * near));
        row += row_step();
    }
}

/// Writes the input's gradient, and for each part of the rows the sum of what it wrote.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn backward<F: Float, N: Size>(
    input: &Array<Vector<F, N>>,
    bias: &Array<Vector<F, N>>,
    gradient: &Array<Vector<F, N>>,
    output: &mut Array<Vector<F, N>>,
    partials: &mut Array<Vector<f32, N>>,
    rows: usize,
    vectors: usize,
    #[define(F)] _dtype: StorageType,
) {
    let column = own_column();
    if column >= vectors {
        terminate!();
    }
    let bias = Vector::<f32, N>::cast_from(bias[column]);
    let one = Vector::<f32, N>::new(f32::new(1.0));
    let slope = Vector::<f32, N>::new(f32::new(SLOPE));
    let cube = Vector::<f32, N>::new(f32::new(comptime!(3.0 * CUBE)));
    let mut sum = Vector::<f32, N>::new(f32::new(0.0));
    let mut row = first_row();
    while row < rows {
        let at = row * vectors + column;
        let x = at_least::<N>(
            Vector::<f32, N>::cast_from(input[at]) + bias,
            comptime!(-(FAR as f32)).runtime(),
        );
        let x = at_most::<N>(x, comptime!(FAR as f32).runtime());
        let square = x * x;
        let share = share::<N>(x, square);
        let derivative = share + x * share * (one - share) * (square * cube + slope);
        let term = Vector::<f32, N>::cast_from(gradient[at]) * derivative;
        output[at] = Vector::cast_from(term);
        sum += term;
        row += row_step();
    }
    partials[first_row() * vectors + column] = sum;
}

/// `sigmoid(2u)`
#[cube]
fn share<N: Size>(x: Vector<f32, N>, square: Vector<f32, N>) -> Vector<f32, N> {
    let slope = Vector::<f32, N>::new(f32::new(SLOPE));
    let cube = Vector::<f32, N>::new(f32::new(CUBE));
    sigmoid::<N>((square * cube + slope) * x)
}
