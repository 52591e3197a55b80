//! The kernels of bias and GELU.
//!
//! As in the reference, `x · sigmoid(2u)` with `u` the argument of tanh. Beyond ±64 the function is `x` or 0 to the last
//! digit, so that the polynomial is computed for arguments within, and nothing overflows.

use cubecl::prelude::*;

use crate::cube::walk::{first_row, own_column, row_step, sigmoid};

/// `2 √(2/π)`
const SLOPE: f32 = 2.0 * std::f32::consts::FRAC_2_SQRT_PI * std::f32::consts::FRAC_1_SQRT_2;
/// `0.044715 · 2 √(2/π)`
const CUBE: f32 = 0.071_354_816;

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
        let x = Vector::<f32, N>::cast_from(input[at]) + bias;
        let near = bounded::<N>(x);
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
        let x = bounded::<N>(Vector::<f32, N>::cast_from(input[at]) + bias);
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

#[cube]
fn bounded<N: Size>(x: Vector<f32, N>) -> Vector<f32, N> {
    let bound = Vector::<f32, N>::new(f32::new(64.0));
    max(min(x, bound), Vector::<f32, N>::new(f32::new(-64.0)))
}

/// `sigmoid(2u)`
#[cube]
fn share<N: Size>(x: Vector<f32, N>, square: Vector<f32, N>) -> Vector<f32, N> {
    let slope = Vector::<f32, N>::new(f32::new(SLOPE));
    let cube = Vector::<f32, N>::new(f32::new(CUBE));
    sigmoid::<N>((square * cube + slope) * x)
}
