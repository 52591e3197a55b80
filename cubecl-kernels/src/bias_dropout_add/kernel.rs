//! The kernels of the sum.

use cubecl::prelude::*;

use crate::grid::{DropoutSite, factors, first_row, own_column, row_step};

/// Writes `residual + dropout(input + bias)`. Bias and places are read only where there are such.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn forward<F: Float, N: Size>(
    input: &Array<Vector<F, N>>,
    bias: &Array<Vector<F, N>>,
    residual: &Array<Vector<F, N>>,
    places: &Array<u32>,
    output: &mut Array<Vector<F, N>>,
    site: DropoutSite,
    rows: usize,
    vectors: usize,
    #[comptime] has_bias: bool,
    #[comptime] has_dropout: bool,
    #[define(F)] _dtype: StorageType,
) {
    let column = own_column();
    if column >= vectors {
        terminate!();
    }
    let mut own_bias = Vector::<f32, N>::new(f32::new(0.0));
    if comptime!(has_bias) {
        own_bias = Vector::<f32, N>::cast_from(bias[column]);
    }
    let mut row = first_row();
    while row < rows {
        let at = row * vectors + column;
        let mut x = Vector::<f32, N>::cast_from(input[at]) + own_bias;
        if comptime!(has_dropout) {
            x *= factors::<N>(&site, places, row, column * N::value());
        }
        output[at] = Vector::cast_from(x + Vector::<f32, N>::cast_from(residual[at]));
        row += row_step();
    }
}

/// Writes the input's gradient where there is dropout, for else it is the sum's; and where there is a bias, for each part
/// of the rows the sum of the input's gradient.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn backward<F: Float, N: Size>(
    gradient: &Array<Vector<F, N>>,
    places: &Array<u32>,
    output: &mut Array<Vector<F, N>>,
    partials: &mut Array<Vector<f32, N>>,
    site: DropoutSite,
    rows: usize,
    vectors: usize,
    #[comptime] has_bias: bool,
    #[comptime] has_dropout: bool,
    #[define(F)] _dtype: StorageType,
) {
    let column = own_column();
    if column >= vectors {
        terminate!();
    }
    let mut sum = Vector::<f32, N>::new(f32::new(0.0));
    let mut row = first_row();
    while row < rows {
        let at = row * vectors + column;
        let mut x = Vector::<f32, N>::cast_from(gradient[at]);
        if comptime!(has_dropout) {
            x *= factors::<N>(&site, places, row, column * N::value());
            output[at] = Vector::cast_from(x);
        }
        sum += x;
        row += row_step();
    }
    if comptime!(has_bias) {
        partials[first_row() * vectors + column] = sum;
    }
}
