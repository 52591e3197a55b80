//! The kernels of bias and GELU.
//!
//! As in the reference, `x · sigmoid(2u)` with `u` the argument of tanh, computed for arguments within [`FAR`].

use cubecl::prelude::*;

use super::FAR;
use crate::cube::math::{at_least, at_most, exponent_scale, over_one_plus_exp, times_rest};
use crate::cube::walk::{ROWS_AT_ONCE, first_row, own_column, row_of_turn, row_step};

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
    #[comptime] is_fast: bool,
    #[define(F)] _dtype: StorageType,
) {
    let column = own_column();
    if column >= vectors {
        terminate!();
    }
    let bias = Vector::<f32, N>::cast_from(bias[column]);
    let mut row = first_row();
    while row < rows {
        let mut inputs = Array::<Vector<F, N>>::new(ROWS_AT_ONCE);
        #[unroll]
        for turn in 0..ROWS_AT_ONCE {
            inputs[turn] = input[row_of_turn(row, turn, rows) * vectors + column];
        }
        #[unroll]
        for turn in 0..ROWS_AT_ONCE {
            let own = row + turn * row_step();
            if own < rows {
                // Not lower, so that the share of −∞, 0, makes it 0.
                let x = at_least::<N>(
                    Vector::<f32, N>::cast_from(inputs[turn]) + bias,
                    comptime!(-(FAR as f32)).runtime(),
                );
                let near = at_most::<N>(x, comptime!(FAR as f32).runtime());
                let falling = falling::<N>(near, near * near, is_fast);
                output[own * vectors + column] = Vector::cast_from(over_one_plus_exp::<N>(x, falling, is_fast));
            }
        }
        row += ROWS_AT_ONCE * row_step();
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
    #[comptime] is_fast: bool,
    #[define(F)] _dtype: StorageType,
) {
    let column = own_column();
    if column >= vectors {
        terminate!();
    }
    let bias = Vector::<f32, N>::cast_from(bias[column]);
    let mut sum = Vector::<f32, N>::new(f32::new(0.0));
    let mut row = first_row();
    while row < rows {
        let mut inputs = Array::<Vector<F, N>>::new(ROWS_AT_ONCE);
        let mut gradients = Array::<Vector<F, N>>::new(ROWS_AT_ONCE);
        #[unroll]
        for turn in 0..ROWS_AT_ONCE {
            let at = row_of_turn(row, turn, rows) * vectors + column;
            inputs[turn] = input[at];
            gradients[turn] = gradient[at];
        }
        #[unroll]
        for turn in 0..ROWS_AT_ONCE {
            let own = row + turn * row_step();
            if own < rows {
                let x = Vector::<f32, N>::cast_from(inputs[turn]) + bias;
                let derivative = derivative_at::<N>(x, is_fast);
                let term = Vector::<f32, N>::cast_from(gradients[turn]) * derivative;
                output[own * vectors + column] = Vector::cast_from(term);
                sum += term;
            }
        }
        row += ROWS_AT_ONCE * row_step();
    }
    partials[first_row() * vectors + column] = sum;
}

/// `s + x s (1 − s) · 2u'` with `s = sigmoid(2u)`.
#[cube]
fn derivative_at<N: Size>(x: Vector<f32, N>, #[comptime] is_fast: bool) -> Vector<f32, N> {
    let one = Vector::<f32, N>::new(f32::new(1.0));
    let slope = Vector::<f32, N>::new(f32::new(SLOPE));
    let cube = Vector::<f32, N>::new(f32::new(comptime!(3.0 * CUBE)));
    let x = at_least::<N>(x, comptime!(-(FAR as f32)).runtime());
    let x = at_most::<N>(x, comptime!(FAR as f32).runtime());
    let square = x * x;
    let share = over_one_plus_exp::<N>(one, falling::<N>(x, square, is_fast), is_fast);
    let slopes = x * (square * cube + slope);
    fma(times_rest::<N>(slopes, share), share, share)
}

/// `−2u`, scaled for [`over_one_plus_exp`].
#[cube]
fn falling<N: Size>(x: Vector<f32, N>, square: Vector<f32, N>, #[comptime] is_fast: bool) -> Vector<f32, N> {
    let slope = Vector::<f32, N>::new(f32::new(comptime!(-SLOPE * exponent_scale(is_fast))));
    let cube = Vector::<f32, N>::new(f32::new(comptime!(-CUBE * exponent_scale(is_fast))));
    (square * cube + slope) * x
}
