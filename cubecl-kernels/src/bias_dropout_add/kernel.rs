//! The kernels of the sum.

use cubecl::prelude::*;

use crate::cube::dropout::{DroppedRows, dropout_factors, dropout_row};
use crate::cube::walk::{ROWS_AT_ONCE, first_row, own_column, row_of_turn, row_step};

/// Writes `residual + dropout(input + bias)`.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn forward<F: Float, N: Size>(
    input: &Array<Vector<F, N>>,
    bias: &ComptimeOption<Array<Vector<F, N>>>,
    residual: &Array<Vector<F, N>>,
    dropped: &ComptimeOption<DroppedRows>,
    output: &mut Array<Vector<F, N>>,
    rows: usize,
    vectors: usize,
    #[define(F)] _dtype: StorageType,
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
    gradient: &Array<Vector<F, N>>,
    dropped: &ComptimeOption<DroppedRows>,
    of_input: &mut ComptimeOption<Array<Vector<F, N>>>,
    partials: &mut ComptimeOption<Array<Vector<f32, N>>>,
    rows: usize,
    vectors: usize,
    #[define(F)] _dtype: StorageType,
) {
    let column = own_column();
    if column >= vectors {
        terminate!();
    }
    let size = N::value();
    let mut sum = Vector::<f32, N>::new(f32::new(0.0));
    let mut row = first_row();
    while row < rows {
        let mut gradients = Array::<Vector<F, N>>::new(ROWS_AT_ONCE);
        #[unroll]
        for turn in 0..ROWS_AT_ONCE {
            gradients[turn] = gradient[row_of_turn(row, turn, rows) * vectors + column];
        }
        #[unroll]
        for turn in 0..ROWS_AT_ONCE {
            let own = row + turn * row_step();
            if own < rows {
                let mut x = Vector::<f32, N>::cast_from(gradients[turn]);
                #[comptime]
                if let ComptimeOption::Some(dropped) = dropped {
                    let place = dropout_row(dropped, own, 0u32);
                    x *= dropout_factors::<N>(&dropped.dropout, &place, (column * size) as u32);
                }
                #[comptime]
                if let ComptimeOption::Some(of_input) = of_input {
                    of_input[own * vectors + column] = Vector::cast_from(x);
                }
                sum += x;
            }
        }
        row += ROWS_AT_ONCE * row_step();
    }
    #[comptime]
    if let ComptimeOption::Some(partials) = partials {
        partials[first_row() * vectors + column] = sum;
    }
}
