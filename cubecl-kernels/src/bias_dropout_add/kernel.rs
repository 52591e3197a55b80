//! The kernels of the sum.

use cubecl::prelude::*;

use crate::cube::dropout::{DroppedRows, dropout_factors, dropout_row};
use crate::cube::walk::{ROWS_AT_ONCE, first_row, own_column, row_step};

/// Writes `residual + dropout(input + bias)`.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn forward<F: Float, N: Size>(
    input: &[Vector<F, N>],
    bias: ComptimeOption<&[Vector<F, N>]>,
    residual: &[Vector<F, N>],
    dropped: &ComptimeOption<DroppedRows>,
    output: &mut [Vector<F, N>],
    rows: usize,
    vectors: usize,
    #[define(F)] _dtype: ElemType,
) {
    let column = own_column();
    if column >= vectors {
        terminate!();
    }
    let mut own_bias = Vector::<f32, N>::new(f32::new(0.0));
    #[comptime]
    if let ComptimeOption::Some(bias) = bias {
        own_bias = Vector::<f32, N>::cast_from(bias[column]);
    }
    let size = N::value();
    let mut row = first_row();
    while row < rows {
        let at = row * vectors + column;
        let mut x = Vector::<f32, N>::cast_from(input[at]) + own_bias;
        #[comptime]
        if let ComptimeOption::Some(dropped) = dropped {
            let place = dropout_row(dropped, row, 0u32);
            x *= dropout_factors::<N>(&dropped.dropout, &place, (column * size) as u32);
        }
        output[at] = Vector::cast_from(x + Vector::<f32, N>::cast_from(residual[at]));
        row += row_step();
    }
}

/// Writes the input's gradient where there is dropout, for else it is the sum's; and where there is a bias, for each
/// part of the rows the sum of the input's gradient.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn backward<F: Float, N: Size>(
    gradient: &[Vector<F, N>],
    dropped: &ComptimeOption<DroppedRows>,
    of_input: &mut ComptimeOption<Box<[Vector<F, N>]>>,
    partials: ComptimeOption<&mut [Vector<f32, N>]>,
    rows: usize,
    vectors: usize,
    #[define(F)] _dtype: ElemType,
) {
    let column = own_column();
    if column >= vectors {
        terminate!();
    }
    let mut sum = Vector::<f32, N>::new(f32::new(0.0));
    let mut row = first_row();
    // Whole turns: what is loaded under a condition, as beyond the last row, is asked for later.
    while row + comptime!(ROWS_AT_ONCE - 1) * row_step() < rows {
        let mut gradients = Array::<Vector<F, N>>::new(ROWS_AT_ONCE);
        #[unroll]
        for turn in 0..ROWS_AT_ONCE {
            gradients[turn] = gradient[(row + turn * row_step()) * vectors + column];
        }
        #[unroll]
        for turn in 0..ROWS_AT_ONCE {
            let own = row + turn * row_step();
            sum += through_dropout::<F, N>(gradients[turn], dropped, of_input, own, vectors, column);
        }
        row += ROWS_AT_ONCE * row_step();
    }
    while row < rows {
        let last = gradient[row * vectors + column];
        sum += through_dropout::<F, N>(last, dropped, of_input, row, vectors, column);
        row += row_step();
    }
    #[comptime]
    if let ComptimeOption::Some(partials) = partials {
        partials[first_row() * vectors + column] = sum;
    }
}

/// Applies dropout backward to a vector of the sum's gradient, writes that where it is written, and returns it.
#[cube]
fn through_dropout<F: Float, N: Size>(
    gradient: Vector<F, N>,
    dropped: &ComptimeOption<DroppedRows>,
    of_input: &mut ComptimeOption<Box<[Vector<F, N>]>>,
    row: usize,
    vectors: usize,
    column: usize,
) -> Vector<f32, N> {
    let mut x = Vector::<f32, N>::cast_from(gradient);
    #[comptime]
    if let ComptimeOption::Some(dropped) = dropped {
        let place = dropout_row(dropped, row, 0u32);
        x *= dropout_factors::<N>(&dropped.dropout, &place, (column * N::value()) as u32);
    }
    #[comptime]
    if let ComptimeOption::Some(of_input) = of_input {
        of_input[row * vectors + column] = Vector::cast_from(x);
    }
    x
}
