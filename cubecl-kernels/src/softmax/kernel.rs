//! The softmax's kernels: each row is read once, held by the units that share it, and written once.
//!
//! Launched by `launch.rs`. Scores that count for nothing are taken for −∞, and a row's largest one for the lowest
//! finite number at least: so no difference is of two −∞, and what is not there has the exponential 0.

use cubecl::prelude::*;

use crate::cube::math::exp_or_zero;
use crate::cube::reduce::{RowLayout, Rows, row_max, row_sum, vector_max, vector_sum};

/// Sizes that a row's place among samples, heads and queries follows from, and the mask's row from that.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(super) struct Places {
    /// The queries of a head.
    pub queries: usize,
    /// The heads of a sample.
    pub heads: usize,
    /// The mask's heads between a sample and the next: 0 where all share one.
    pub sample_step: usize,
    /// The mask's heads between a head and the next: 0 where all share one.
    pub head_step: usize,
}

/// Writes `exp((score − largest) · sharpness)` over its sum. The sharpness is the scale times
/// [`exponent_scale`](crate::cube::math::exponent_scale), and `nothing` is −∞, which not every shader language has a
/// literal for.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn forward<E: Float, M: Numeric, N: Size>(
    scores: &[Vector<E, N>],
    mask: ComptimeOption<&[Vector<M, N>]>,
    output: &mut [Vector<E, N>],
    rows: &Rows,
    places: &Places,
    sharpness: f32,
    nothing: f32,
    #[comptime] is_causal: bool,
    #[comptime] is_fast: bool,
    #[comptime] layout: RowLayout,
    #[define(E, M)] _types: [ElemType; 2],
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
        let query = row % places.queries;
        let start = row * rows.vectors;
        // Of a causal row, vectors of masked keys alone are not read.
        let mut readable = rows.vectors;
        if comptime!(is_causal) {
            readable = query / size + 1;
        }

        // All is asked for before any is waited for.
        let mut loaded = Array::<Vector<E, N>>::new(slots);
        #[unroll(is_unrolled)]
        for slot in 0..slots {
            let index = slot * units + unit;
            if index < readable {
                loaded[slot] = scores[start + index];
            }
        }
        let mut masked = Array::<Vector<M, N>>::new(comptime!(if mask.is_some() { layout.slots } else { 1 }));
        #[comptime]
        if let ComptimeOption::Some(mask) = mask {
            let head = row / places.queries;
            let first = head / places.heads * places.sample_step + head % places.heads * places.head_step;
            let mask_start = (first * places.queries + query) * rows.vectors;
            #[unroll(is_unrolled)]
            for slot in 0..slots {
                let index = slot * units + unit;
                if index < readable {
                    masked[slot] = mask[mask_start + index];
                }
            }
        }

        let mut values = Array::<Vector<f32, N>>::new(slots);
        let mut maxima = Vector::<f32, N>::new(f32::min_value());
        #[unroll(is_unrolled)]
        for slot in 0..slots {
            let index = slot * units + unit;
            let mut value = Vector::<f32, N>::new(nothing);
            if index < readable {
                value = Vector::cast_from(loaded[slot]);
                if comptime!(is_causal) {
                    // Only the last vector has keys after the query.
                    if index + 1 == readable {
                        #[unroll]
                        for element in 0..size {
                            let score = select(index * size + element > query, nothing, value.extract(element));
                            value.insert(element, score);
                        }
                    }
                }
                if comptime!(mask.is_some()) {
                    let own = masked[slot];
                    #[unroll]
                    for element in 0..size {
                        let is_masked = own.extract(element) != M::from_int(0);
                        value.insert(element, select(is_masked, nothing, value.extract(element)));
                    }
                }
            }
            maxima = max(maxima, value);
            values[slot] = value;
        }

        let maximum = row_max(vector_max(maxima), layout);
        let mut sums = Vector::<f32, N>::new(0.0f32);
        #[unroll(is_unrolled)]
        for slot in 0..slots {
            let exponents = (values[slot] - Vector::new(maximum)) * Vector::new(sharpness);
            let exponentials = exp_or_zero::<N>(exponents, is_fast);
            sums += exponentials;
            values[slot] = exponentials;
        }

        let sum = row_sum(vector_sum(sums), layout);
        let share = select(sum == 0.0f32, 0.0f32, 1.0f32 / sum);
        #[unroll(is_unrolled)]
        for slot in 0..slots {
            let index = slot * units + unit;
            if is_there && index < rows.vectors {
                output[start + index] = Vector::cast_from(values[slot] * Vector::new(share));
            }
        }
    }
}

/// Writes `scale * p * (g - sum(p * g))` for probabilities `p` and their gradient `g`.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn backward<E: Float, N: Size>(
    output: &[Vector<E, N>],
    gradient: &[Vector<E, N>],
    result: &mut [Vector<E, N>],
    rows: &Rows,
    scale: f32,
    #[comptime] layout: RowLayout,
    #[define(E)] _type: ElemType,
) {
    let slots = comptime!(layout.slots);
    let is_unrolled = comptime!(layout.is_unrolled);
    let unit = UNIT_POS_X as usize;
    let units = CUBE_DIM_X as usize;

    for turn in 0..rows.turns() {
        let place = rows.of_turn(turn);
        let is_there = place < rows.count;
        let start = select(is_there, place, 0usize) * rows.vectors;

        // Held in the tensor's type: those of 16 bits take half the registers.
        let mut probabilities = Array::<Vector<E, N>>::new(slots);
        let mut gradients = Array::<Vector<E, N>>::new(slots);
        let mut sums = Vector::<f32, N>::new(0.0f32);
        #[unroll(is_unrolled)]
        for slot in 0..slots {
            let index = slot * units + unit;
            if index < rows.vectors {
                let probability = output[start + index];
                let slope = gradient[start + index];
                sums += Vector::<f32, N>::cast_from(probability) * Vector::<f32, N>::cast_from(slope);
                probabilities[slot] = probability;
                gradients[slot] = slope;
            }
        }

        let along = row_sum(vector_sum(sums), layout);
        #[unroll(is_unrolled)]
        for slot in 0..slots {
            let index = slot * units + unit;
            if is_there && index < rows.vectors {
                let probability = Vector::<f32, N>::cast_from(probabilities[slot]);
                let slope = Vector::<f32, N>::cast_from(gradients[slot]);
                let inner = probability * (slope - Vector::new(along));
                result[start + index] = Vector::cast_from(inner * Vector::new(scale));
            }
        }
    }
}
