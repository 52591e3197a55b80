//! The norms forward, alone or after the sum of a residual stream.

use cubecl::prelude::*;

use crate::cube::dropout::{DroppedRows, dropout_factors, dropout_row};
use crate::cube::reduce::{RowLayout, Rows, row_sum, vector_sum};

/// Terms that are added to the input before the norm: none without a residual.
#[derive(CubeType, CubeLaunch)]
pub(in super::super) struct SumBefore<E: Float, N: Size> {
    /// `[columns]`
    pub bias: ComptimeOption<Box<[Vector<E, N>]>>,
    /// Drops elements of input and bias.
    pub dropped: ComptimeOption<DroppedRows>,
    /// `[rows, columns]`
    pub residual: ComptimeOption<Box<[Vector<E, N>]>>,
}

/// Writes the norm of each row and the row's statistics, and the sum before it where there is one. With `loads_ahead`
/// registers hold what is added up, too.
///
/// The norm is that of the sum as it is written, in the tensor's type: so the backward pass sees it.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::collapsible_if, reason = "the outer one is decided when the kernel is made")]
pub(in super::super) fn forward<E: Float, N: Size>(
    input: &[Vector<E, N>],
    before: &SumBefore<E, N>,
    weight: &[Vector<E, N>],
    bias: &ComptimeOption<Box<[Vector<E, N>]>>,
    hidden: &mut ComptimeOption<Box<[Vector<E, N>]>>,
    output: &mut [Vector<E, N>],
    means: &mut ComptimeOption<Box<[f32]>>,
    reciprocals: &mut [f32],
    rows: &Rows,
    columns: f32,
    epsilon: f32,
    #[comptime] is_layer: bool,
    #[comptime] loads_ahead: bool,
    #[comptime] layout: RowLayout,
    #[define(E)] _type: ElemType,
) {
    let slots = comptime!(layout.slots);
    let is_unrolled = comptime!(layout.is_unrolled);
    let unit = UNIT_POS_X as usize;
    let units = CUBE_DIM_X as usize;
    let size = N::value();

    for turn in 0..rows.turns() {
        let place = rows.of_turn(turn);
        let is_there = place < rows.count;
        let row = select(is_there, place, 0usize);
        let start = row * rows.vectors;

        // Where a sum is written, what is loaded after it waits for it: all is asked for before.
        let is_ahead = comptime!(loads_ahead && before.residual.is_some());
        let ahead = comptime!(if is_ahead { layout.slots } else { 1 });
        let mut inputs = Array::<Vector<E, N>>::new(ahead);
        let mut residuals = Array::<Vector<E, N>>::new(ahead);
        #[comptime]
        if let ComptimeOption::Some(residual) = &before.residual {
            #[unroll(is_unrolled)]
            for slot in 0..slots {
                let index = slot * units + unit;
                if comptime!(is_ahead) {
                    if index < rows.vectors {
                        inputs[slot] = input[start + index];
                        residuals[slot] = residual[start + index];
                    }
                }
            }
        }

        let mut values = Array::<Vector<f32, N>>::new(slots);
        let mut sums = Vector::<f32, N>::new(0.0f32);
        #[unroll(is_unrolled)]
        for slot in 0..slots {
            let index = slot * units + unit;
            let mut value = Vector::<f32, N>::new(0.0f32);
            if index < rows.vectors {
                value = if comptime!(is_ahead) {
                    Vector::cast_from(inputs[slot])
                } else {
                    Vector::cast_from(input[start + index])
                };
                #[comptime]
                if let ComptimeOption::Some(bias) = &before.bias {
                    value += Vector::cast_from(bias[index]);
                }
                #[comptime]
                if let ComptimeOption::Some(dropped) = &before.dropped {
                    let dropout_row = dropout_row(dropped, row, 0u32);
                    value *= dropout_factors::<N>(&dropped.dropout, &dropout_row, (index * size) as u32);
                }
                #[comptime]
                if let ComptimeOption::Some(residual) = &before.residual {
                    value += if comptime!(is_ahead) {
                        Vector::cast_from(residuals[slot])
                    } else {
                        Vector::cast_from(residual[start + index])
                    };
                }
                #[comptime]
                if let ComptimeOption::Some(hidden) = hidden {
                    let sum = Vector::<E, N>::cast_from(value);
                    if is_there {
                        hidden[start + index] = sum;
                    }
                    value = Vector::cast_from(sum);
                }
            }
            sums += value;
            values[slot] = value;
        }

        let mut mean = 0.0f32;
        if comptime!(is_layer) {
            mean = row_sum(vector_sum(sums), layout) / columns;
        }
        let mut squares = Vector::<f32, N>::new(0.0f32);
        #[unroll(is_unrolled)]
        for slot in 0..slots {
            if slot * units + unit < rows.vectors {
                let distance = values[slot] - Vector::new(mean);
                squares += distance * distance;
            }
        }
        let variance = row_sum(vector_sum(squares), layout) / columns;
        let reciprocal = 1.0f32 / (variance + epsilon).sqrt();

        #[unroll(is_unrolled)]
        for slot in 0..slots {
            let index = slot * units + unit;
            if is_there && index < rows.vectors {
                let normal = (values[slot] - Vector::new(mean)) * Vector::new(reciprocal);
                let mut result = normal * Vector::cast_from(weight[index]);
                #[comptime]
                if let ComptimeOption::Some(bias) = bias {
                    result += Vector::cast_from(bias[index]);
                }
                output[start + index] = Vector::cast_from(result);
            }
        }
        if is_there && unit == 0 {
            reciprocals[row] = reciprocal;
            #[comptime]
            if let ComptimeOption::Some(means) = means {
                means[row] = mean;
            }
        }
    }
}
