//! The norms backward, alone or with the sum of a residual stream before them.

use cubecl::prelude::*;

use crate::cube::dropout::{DroppedRows, dropout_factors, dropout_row};
use crate::cube::reduce::{RowLayout, Rows, row_sums, vector_sum};

/// Writes the gradient of each row, and sums over rows for the parameters' gradients.
///
/// Each unit keeps its columns' sums over all rows that its cube takes up, and leaves them in a row of its own of the
/// partial sums. Where the norm is behind a sum, `of_hidden` is the sum's own gradient, `result` that of the residual, and
/// `of_input` that of what dropout was applied to; without dropout they are the same, and `of_input` is not written.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(in super::super) fn backward<E: Float, N: Size>(
    input: &Tensor<Vector<E, N>>,
    weight: &Tensor<Vector<E, N>>,
    gradient: &Tensor<Vector<E, N>>,
    means: &ComptimeOption<Tensor<f32>>,
    reciprocals: &Tensor<f32>,
    of_hidden: &ComptimeOption<Tensor<Vector<E, N>>>,
    dropped: &ComptimeOption<DroppedRows>,
    result: &mut Tensor<Vector<E, N>>,
    of_input: &mut ComptimeOption<Tensor<Vector<E, N>>>,
    of_weight: &mut Tensor<Vector<f32, N>>,
    of_bias: &mut ComptimeOption<Tensor<Vector<f32, N>>>,
    of_addend: &mut ComptimeOption<Tensor<Vector<f32, N>>>,
    rows: &Rows,
    columns: f32,
    #[comptime] layout: RowLayout,
    #[define(E)] _type: StorageType,
) {
    let slots = comptime!(layout.slots);
    let is_unrolled = comptime!(layout.is_unrolled);
    let unit = UNIT_POS_X as usize;
    let units = CUBE_DIM_X as usize;
    let size = comptime!(N::value());

    let mut weights = Array::<Vector<E, N>>::new(slots);
    let mut weight_sums = Array::<Vector<f32, N>>::new(slots);
    let mut bias_sums = Array::<Vector<f32, N>>::new(slots);
    let mut addend_sums = Array::<Vector<f32, N>>::new(slots);
    #[unroll(is_unrolled)]
    for slot in 0..slots {
        let index = slot * units + unit;
        if index < rows.vectors {
            weights[slot] = weight[index];
        }
        weight_sums[slot] = Vector::new(0.0f32);
        bias_sums[slot] = Vector::new(0.0f32);
        addend_sums[slot] = Vector::new(0.0f32);
    }

    for turn in 0..rows.turns() {
        let place = rows.of_turn(turn);
        let is_there = place < rows.count;
        let row = select(is_there, place, 0usize);
        let start = row * rows.vectors;
        let reciprocal = reciprocals[row];
        let mut mean = 0.0f32;
        #[comptime]
        if let ComptimeOption::Some(means) = means {
            mean = means[row];
        }

        // Held in the tensor's type: those of 16 bits take half the registers.
        let mut inputs = Array::<Vector<E, N>>::new(slots);
        let mut gradients = Array::<Vector<E, N>>::new(slots);
        let mut level_sums = Vector::<f32, N>::new(0.0f32);
        let mut along_sums = Vector::<f32, N>::new(0.0f32);
        #[unroll(is_unrolled)]
        for slot in 0..slots {
            let index = slot * units + unit;
            if index < rows.vectors {
                let x = input[start + index];
                let g = gradient[start + index];
                let normal = (Vector::<f32, N>::cast_from(x) - Vector::new(mean)) * Vector::new(reciprocal);
                let weighted = Vector::<f32, N>::cast_from(g) * Vector::<f32, N>::cast_from(weights[slot]);
                level_sums += weighted;
                along_sums += weighted * normal;
                inputs[slot] = x;
                gradients[slot] = g;
            }
        }
        let (level_sum, along_sum) = row_sums(vector_sum(level_sums), vector_sum(along_sums), layout);
        let along = along_sum / columns;
        let mut level = 0.0f32;
        #[comptime]
        if let ComptimeOption::Some(_) = means {
            level = level_sum / columns;
        }

        #[unroll(is_unrolled)]
        for slot in 0..slots {
            let index = slot * units + unit;
            if is_there && index < rows.vectors {
                let distance = Vector::<f32, N>::cast_from(inputs[slot]) - Vector::new(mean);
                let normal = distance * Vector::new(reciprocal);
                let g = Vector::<f32, N>::cast_from(gradients[slot]);
                let weighted = g * Vector::<f32, N>::cast_from(weights[slot]);
                let inner = weighted - Vector::new(level) - normal * Vector::new(along);
                let mut total = inner * Vector::new(reciprocal);
                weight_sums[slot] += g * normal;
                bias_sums[slot] += g;
                #[comptime]
                if let ComptimeOption::Some(of_hidden) = of_hidden {
                    total += Vector::cast_from(of_hidden[start + index]);
                }
                let rounded = Vector::<E, N>::cast_from(total);
                result[start + index] = rounded;
                let mut of_sum = Vector::<f32, N>::cast_from(rounded);
                #[comptime]
                if let ComptimeOption::Some(dropped) = dropped {
                    let dropout_row = dropout_row(dropped, row, 0u32);
                    of_sum *= dropout_factors::<N>(&dropped.dropout, &dropout_row, (index * size) as u32);
                }
                #[comptime]
                if let ComptimeOption::Some(of_input) = of_input {
                    of_input[start + index] = Vector::cast_from(of_sum);
                }
                addend_sums[slot] += of_sum;
            }
        }
    }

    let partial = (CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize) * rows.vectors;
    #[unroll(is_unrolled)]
    for slot in 0..slots {
        let index = slot * units + unit;
        if index < rows.vectors {
            of_weight[partial + index] = weight_sums[slot];
            #[comptime]
            if let ComptimeOption::Some(of_bias) = of_bias {
                of_bias[partial + index] = bias_sums[slot];
            }
            #[comptime]
            if let ComptimeOption::Some(of_addend) = of_addend {
                of_addend[partial + index] = addend_sums[slot];
            }
        }
    }
}
