//! The norms backward for rows that registers do not hold: one kernel for what all of a row depends on, one for the
//! gradients. Neither keeps more than a vector of a row, so that rows may have any length.

use cubecl::prelude::*;

use super::shared::{Before, RowSums, through_sum};
use crate::cube::reduce::{RowLayout, Rows, row_sums, vector_sum};
use crate::cube::walk::{first_row, own_column, row_step};

/// Vectors of a row of which a unit asks for all numbers before it waits for any.
const AT_ONCE: usize = 2;

/// Writes of each row the means of its weighted gradient, and of that times the normalised input.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(in super::super) fn row_means<E: Float, N: Size>(
    input: &[Vector<E, N>],
    weight: &[Vector<E, N>],
    gradient: &[Vector<E, N>],
    means: &ComptimeOption<Box<[f32]>>,
    reciprocals: &[f32],
    levels: &mut ComptimeOption<Box<[f32]>>,
    alongs: &mut [f32],
    rows: &Rows,
    columns: f32,
    #[comptime] layout: RowLayout,
    #[define(E)] _type: ElemType,
) {
    let unit = UNIT_POS_X as usize;
    let units = CUBE_DIM_X as usize;
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
        let mut level_sums = Vector::<f32, N>::new(0.0f32);
        let mut along_sums = Vector::<f32, N>::new(0.0f32);
        let mut first = unit;
        while first < rows.vectors {
            let mut inputs = Array::<Vector<E, N>>::new(AT_ONCE);
            let mut gradients = Array::<Vector<E, N>>::new(AT_ONCE);
            let mut weights = Array::<Vector<E, N>>::new(AT_ONCE);
            #[unroll]
            for turn in 0..AT_ONCE {
                let index = first + turn * units;
                if index < rows.vectors {
                    inputs[turn] = input[start + index];
                    gradients[turn] = gradient[start + index];
                    weights[turn] = weight[index];
                }
            }
            #[unroll]
            for turn in 0..AT_ONCE {
                if first + turn * units < rows.vectors {
                    let distance = Vector::<f32, N>::cast_from(inputs[turn]) - Vector::new(mean);
                    let g = Vector::<f32, N>::cast_from(gradients[turn]);
                    let weighted = g * Vector::<f32, N>::cast_from(weights[turn]);
                    level_sums += weighted;
                    along_sums += weighted * (distance * Vector::new(reciprocal));
                }
            }
            first += AT_ONCE * units;
        }
        let (level_sum, along_sum) = row_sums(vector_sum(level_sums), vector_sum(along_sums), turn, layout);
        if is_there && unit == 0 {
            alongs[row] = along_sum / columns;
            #[comptime]
            if let ComptimeOption::Some(levels) = levels {
                levels[row] = level_sum / columns;
            }
        }
    }
}

/// Writes the gradient of each row, and sums over the rows of each part for the parameters' gradients.
///
/// A unit owns a vector of columns, and goes down the rows.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
pub(in super::super) fn columns_backward<E: Float, N: Size>(
    input: &[Vector<E, N>],
    weight: &[Vector<E, N>],
    gradient: &[Vector<E, N>],
    means: &ComptimeOption<Box<[f32]>>,
    reciprocals: &[f32],
    levels: &ComptimeOption<Box<[f32]>>,
    alongs: &[f32],
    before: &Before<E, N>,
    result: &mut [Vector<E, N>],
    of_input: &mut ComptimeOption<Box<[Vector<E, N>]>>,
    partials: &mut [Vector<f32, N>],
    rows: &Rows,
    #[comptime] sums: RowSums,
    #[define(E)] _type: ElemType,
) {
    let column = own_column();
    if column < rows.vectors {
        let weight = Vector::<f32, N>::cast_from(weight[column]);
        let mut weight_sum = Vector::<f32, N>::new(0.0f32);
        let mut bias_sum = Vector::<f32, N>::new(0.0f32);
        let mut addend_sum = Vector::<f32, N>::new(0.0f32);
        let mut row = first_row();
        while row < rows.count {
            let place = row * rows.vectors + column;
            let reciprocal = reciprocals[row];
            let along = alongs[row];
            let mut mean = 0.0f32;
            #[comptime]
            if let ComptimeOption::Some(means) = means {
                mean = means[row];
            }
            let mut level = 0.0f32;
            #[comptime]
            if let ComptimeOption::Some(levels) = levels {
                level = levels[row];
            }
            let distance = Vector::<f32, N>::cast_from(input[place]) - Vector::new(mean);
            let normal = distance * Vector::new(reciprocal);
            let g = Vector::<f32, N>::cast_from(gradient[place]);
            let inner = g * weight - Vector::new(level) - normal * Vector::new(along);
            weight_sum += g * normal;
            bias_sum += g;
            let of_norm = inner * Vector::new(reciprocal);
            let (rounded, of_sum) = through_sum::<E, N>(of_norm, before, row, place, column);
            result[place] = rounded;
            #[comptime]
            if let ComptimeOption::Some(of_input) = of_input {
                of_input[place] = Vector::cast_from(of_sum);
            }
            addend_sum += of_sum;
            row += row_step();
        }
        let partial = first_row() * rows.vectors + column;
        partials[partial] = weight_sum;
        let next = row_step() * rows.vectors;
        if comptime!(sums.bias) {
            partials[partial + next] = bias_sum;
        }
        if comptime!(sums.addend) {
            partials[partial + comptime!(sums.of_addend()) * next] = addend_sum;
        }
    }
}
