//! The norms backward, alone or with the sum of a residual stream before them.

use cubecl::prelude::*;

use super::shared::{Before, RowSums, through_sum};
use crate::cube::reduce::{RowLayout, Rows, row_sums, vector_sum};

/// Writes the gradient of each row, and sums over rows for the parameters' gradients.
///
/// Each unit keeps its columns' sums over all rows that it takes up; the units of a cube's rows add theirs up at the
/// end, and leave them in the cube's row of each vector's partial sums. `of_input` is written where there is dropout,
/// see [`Before`]. The weight is held where `holds_weight` says, else read again for each row.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
#[allow(clippy::collapsible_if, reason = "the outer one is decided when the kernel is made")]
pub(in super::super) fn backward<E: Float, N: Size>(
    input: &[Vector<E, N>],
    weight: &[Vector<E, N>],
    gradient: &[Vector<E, N>],
    means: &ComptimeOption<Box<[f32]>>,
    reciprocals: &[f32],
    before: &Before<E, N>,
    result: &mut [Vector<E, N>],
    of_input: &mut ComptimeOption<Box<[Vector<E, N>]>>,
    partials: &mut [Vector<f32, N>],
    rows: &Rows,
    columns: f32,
    #[comptime] sums: RowSums,
    #[comptime] layout: RowLayout,
    #[comptime] holds_weight: bool,
    #[define(E)] _type: ElemType,
) {
    let slots = comptime!(layout.slots);
    let unit = UNIT_POS_X as usize;
    let units = CUBE_DIM_X as usize;

    let mut weights = Array::<Vector<E, N>>::new(comptime!(if holds_weight { layout.slots } else { 1 }));
    let mut weight_sums = Array::<Vector<f32, N>>::new(slots);
    let mut bias_sums = Array::<Vector<f32, N>>::new(slots);
    let mut addend_sums = Array::<Vector<f32, N>>::new(slots);
    #[unroll]
    for slot in 0..slots {
        let index = slot * units + unit;
        if comptime!(holds_weight) {
            if index < rows.vectors {
                weights[slot] = weight[index];
            }
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
        // Held in the tensor's type: those of 16 bits take half the registers. All is asked for before any is waited
        // for.
        let mut inputs = Array::<Vector<E, N>>::new(slots);
        let mut gradients = Array::<Vector<E, N>>::new(slots);
        #[unroll]
        for slot in 0..slots {
            let index = slot * units + unit;
            if index < rows.vectors {
                inputs[slot] = input[start + index];
                gradients[slot] = gradient[start + index];
            }
        }
        let reciprocal = reciprocals[row];
        let mut mean = 0.0f32;
        #[comptime]
        if let ComptimeOption::Some(means) = means {
            mean = means[row];
        }

        let mut level_sums = Vector::<f32, N>::new(0.0f32);
        let mut along_sums = Vector::<f32, N>::new(0.0f32);
        #[unroll]
        for slot in 0..slots {
            let index = slot * units + unit;
            if index < rows.vectors {
                let distance = Vector::<f32, N>::cast_from(inputs[slot]) - Vector::new(mean);
                let normal = distance * Vector::new(reciprocal);
                let own_weight = if comptime!(holds_weight) {
                    Vector::<f32, N>::cast_from(weights[slot])
                } else {
                    Vector::<f32, N>::cast_from(weight[index])
                };
                let weighted = Vector::<f32, N>::cast_from(gradients[slot]) * own_weight;
                level_sums += weighted;
                along_sums += weighted * normal;
            }
        }
        let (level_sum, along_sum) = row_sums(vector_sum(level_sums), vector_sum(along_sums), turn, layout);
        let along = along_sum / columns;
        let mut level = 0.0f32;
        #[comptime]
        if let ComptimeOption::Some(_) = means {
            level = level_sum / columns;
        }

        #[unroll]
        for slot in 0..slots {
            let index = slot * units + unit;
            if is_there && index < rows.vectors {
                let distance = Vector::<f32, N>::cast_from(inputs[slot]) - Vector::new(mean);
                let normal = distance * Vector::new(reciprocal);
                let g = Vector::<f32, N>::cast_from(gradients[slot]);
                let own_weight = if comptime!(holds_weight) {
                    Vector::<f32, N>::cast_from(weights[slot])
                } else {
                    Vector::<f32, N>::cast_from(weight[index])
                };
                let inner = g * own_weight - Vector::new(level) - normal * Vector::new(along);
                weight_sums[slot] += g * normal;
                bias_sums[slot] += g;
                let of_norm = inner * Vector::new(reciprocal);
                let (rounded, of_sum) = through_sum::<E, N>(of_norm, before, row, start + index, index);
                result[start + index] = rounded;
                #[comptime]
                if let ComptimeOption::Some(of_input) = of_input {
                    of_input[start + index] = Vector::cast_from(of_sum);
                }
                addend_sums[slot] += of_sum;
            }
        }
    }

    add_up::<N>(&weight_sums, partials, 0usize, rows.vectors, layout);
    if comptime!(sums.bias) {
        add_up::<N>(&bias_sums, partials, 1usize, rows.vectors, layout);
    }
    if comptime!(sums.addend) {
        add_up::<N>(
            &addend_sums,
            partials,
            comptime!(sums.of_addend()),
            rows.vectors,
            layout,
        );
    }
}

/// Writes the sums of the cube's rows, in the cube's row of those of the `which`th vector.
#[cube]
fn add_up<N: Size>(
    sums: &Array<Vector<f32, N>>,
    to: &mut [Vector<f32, N>],
    which: usize,
    vectors: usize,
    #[comptime] layout: RowLayout,
) {
    let slots = comptime!(layout.slots);
    let unit = UNIT_POS_X as usize;
    let units = CUBE_DIM_X as usize;
    let others = comptime!(layout.rows - 1);
    let mut totals = Array::<Vector<f32, N>>::new(slots);
    #[unroll]
    for slot in 0..slots {
        totals[slot] = sums[slot];
    }
    if comptime!(others > 0) {
        // One row after the other, that little shared memory is enough: this is done once.
        let mut shared = Shared::<[Vector<f32, N>]>::new_slice(comptime!(layout.slots * layout.units));
        for other in 1..comptime!(layout.rows) {
            // What was in it has been read.
            sync_cube();
            if UNIT_POS_Y as usize == other {
                #[unroll]
                for slot in 0..slots {
                    shared[slot * units + unit] = sums[slot];
                }
            }
            sync_cube();
            if UNIT_POS_Y == 0 {
                #[unroll]
                for slot in 0..slots {
                    totals[slot] += shared[slot * units + unit];
                }
            }
        }
    }
    if UNIT_POS_Y == 0 {
        #[unroll]
        for slot in 0..slots {
            let index = slot * units + unit;
            if index < vectors {
                to[(which * CUBE_COUNT + CUBE_POS) * vectors + index] = totals[slot];
            }
        }
    }
}
