//! The kernels of the cross-entropy.

use cubecl::prelude::*;

use crate::cube::math::{exp, exp_scaled, exponent_scale};
use crate::cube::walk::{ROWS_AT_ONCE, cube_max, cube_sum, first_row, own_column, row_of_turn, row_step};

/// Vectors of a row that a unit takes up at once.
const VECTORS_AT_ONCE: usize = 4;
/// Maxima below this times [`exponent_scale`] are off by less than 2^-11.
const NEAR: f32 = 8192.0;

/// Writes each row's statistics; a cube for each row, of `units` units, a power of two.
///
/// In one pass: each unit keeps the largest logit that it has met and the sum of the exponentials under it, which
/// shrinks when a larger one comes. The largest starts at the smallest finite number, so that differences of −∞ do not
/// arise; a sum of 0 tells that all were −∞.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn statistics<F: Float, I: Int, N: Size>(
    logits: &[Vector<F, N>],
    targets: &[I],
    maximum: &mut [f32],
    sum: &mut [f32],
    target: &mut [f32],
    rows: usize,
    vectors: usize,
    valid: usize,
    lowest: f32,
    #[comptime] units: usize,
    #[comptime] is_fast: bool,
    #[define(F, I)] _dtypes: [ElemType; 2],
) {
    let row = CUBE_POS;
    if row >= rows {
        terminate!();
    }
    let unit = UNIT_POS as usize;
    let size = N::value();
    let start = row * vectors;
    if unit == 0 {
        target[row] = logit::<F, I, N>(logits, start, targets[row], valid);
    }

    let mut largest = f32::new(f32::MIN);
    let mut total = f32::new(0.0);
    let whole = valid / size;
    let mut vector = unit;
    while vector + comptime!((VECTORS_AT_ONCE - 1) * units) < whole {
        let mut loaded = Array::<Vector<F, N>>::new(VECTORS_AT_ONCE);
        #[unroll]
        for turn in 0..VECTORS_AT_ONCE {
            loaded[turn] = logits[start + vector + comptime!(turn * units)];
        }
        let mut taken = Array::<Vector<f32, N>>::new(VECTORS_AT_ONCE);
        #[unroll]
        for turn in 0..VECTORS_AT_ONCE {
            taken[turn] = Vector::cast_from(loaded[turn]);
        }
        let now = largest_of::<N>(&taken, largest, VECTORS_AT_ONCE);
        let terms = terms_under::<N>(&taken, now, VECTORS_AT_ONCE, is_fast);
        total = total * f32::exp(largest - now) + terms;
        largest = now;
        vector += comptime!(VECTORS_AT_ONCE * units);
    }
    while vector * size < valid {
        let first = vector * size;
        let mut taken = Array::<Vector<f32, N>>::new(1usize);
        let mut x = Vector::<f32, N>::cast_from(logits[start + vector]);
        #[unroll]
        for lane in 0..size {
            x.insert(lane, select(first + lane >= valid, lowest, x.extract(lane)));
        }
        taken[0] = x;
        let now = largest_of::<N>(&taken, largest, 1usize);
        let terms = terms_under::<N>(&taken, now, 1usize, is_fast);
        total = total * f32::exp(largest - now) + terms;
        largest = now;
        vector += units;
    }

    let whole = cube_max(largest, units);
    let total = cube_sum(total * f32::exp(largest - whole), units);
    if unit == 0 {
        sum[row] = total;
        maximum[row] = select(total == f32::new(0.0), lowest, whole);
    }
}

/// The target's logit, 0 where it is in another shard.
#[cube]
fn logit<F: Float, I: Int, N: Size>(logits: &[Vector<F, N>], start: usize, number: I, valid: usize) -> f32 {
    let mut found = f32::new(0.0);
    if is_within::<I>(number, valid) {
        let column = u32::cast_from(number) as usize;
        let x = Vector::<f32, N>::cast_from(logits[start + column / N::value()]);
        // Selected one by one: vectors are in registers, which have no index.
        #[unroll]
        for lane in 0..N::value() {
            found = select(column % N::value() == lane, x.extract(lane), found);
        }
    }
    found
}

/// The largest of some vectors' numbers and one more.
#[cube]
fn largest_of<N: Size>(taken: &Array<Vector<f32, N>>, other: f32, #[comptime] count: usize) -> f32 {
    let mut largest = other;
    #[unroll]
    for turn in 0..count {
        #[unroll]
        for lane in 0..N::value() {
            largest = max(largest, taken[turn].extract(lane));
        }
    }
    largest
}

/// The sum of `exp(x − largest)` over some vectors.
///
/// One multiplication and addition for each exponent, where the largest is near 0: exact but for the rounding of the
/// largest times the scale, by which all are off alike.
#[cube]
fn terms_under<N: Size>(
    taken: &Array<Vector<f32, N>>,
    largest: f32,
    #[comptime] count: usize,
    #[comptime] is_fast: bool,
) -> f32 {
    if comptime!(is_fast) {
        let scale = f32::new(comptime!(exponent_scale(true)));
        if f32::abs(largest) < f32::new(NEAR) {
            let shift = -(largest * scale);
            let terms = shifted_terms::<N>(taken, scale, shift, count);
            let off = fma(largest, scale, shift);
            fma(terms, off * f32::new(-std::f32::consts::LN_2), terms)
        } else {
            distant_terms::<N>(taken, largest, count, true)
        }
    } else {
        distant_terms::<N>(taken, largest, count, false)
    }
}

/// The sum of `2^(x · scale + shift)`.
#[cube]
fn shifted_terms<N: Size>(taken: &Array<Vector<f32, N>>, scale: f32, shift: f32, #[comptime] count: usize) -> f32 {
    let mut sum = f32::new(0.0);
    #[unroll]
    for turn in 0..count {
        let exponents = fma(taken[turn], Vector::new(scale), Vector::new(shift));
        let terms = exp_scaled::<N>(exponents, true);
        #[unroll]
        for lane in 0..N::value() {
            sum += terms.extract(lane);
        }
    }
    sum
}

/// The sum of `exp(x − largest)`.
#[cube]
fn distant_terms<N: Size>(
    taken: &Array<Vector<f32, N>>,
    largest: f32,
    #[comptime] count: usize,
    #[comptime] is_fast: bool,
) -> f32 {
    let mut sum = f32::new(0.0);
    #[unroll]
    for turn in 0..count {
        let terms = exp::<N>(taken[turn] - Vector::new(largest), is_fast);
        #[unroll]
        for lane in 0..N::value() {
            sum += terms.extract(lane);
        }
    }
    sum
}

/// Writes `(exp(x − maximum) / sum − onehot) · gradient`, and zeros into the padding. The output may be the logits.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn backward<F: Float, I: Int, N: Size>(
    logits: &[Vector<F, N>],
    targets: &[I],
    maximum: &[f32],
    sum: &[f32],
    gradient: &[f32],
    output: &mut [Vector<F, N>],
    rows: usize,
    vectors: usize,
    valid: usize,
    #[comptime] is_fast: bool,
    #[define(F, I)] _dtypes: [ElemType; 2],
) {
    let vector = own_column();
    if vector >= vectors {
        terminate!();
    }
    let size = N::value();
    let first = vector * size;
    let mut row = first_row();
    while row < rows {
        let mut loaded = Array::<Vector<F, N>>::new(ROWS_AT_ONCE);
        #[unroll]
        for turn in 0..ROWS_AT_ONCE {
            loaded[turn] = logits[row_of_turn(row, turn, rows) * vectors + vector];
        }
        #[unroll]
        for turn in 0..ROWS_AT_ONCE {
            let own = row + turn * row_step();
            if own < rows {
                let x = Vector::<f32, N>::cast_from(loaded[turn]);
                let below = exp::<N>(x - Vector::new(maximum[own]), is_fast);
                // One quotient for the row.
                let mut share = below * Vector::new(f32::new(1.0) / sum[own]);
                let number = targets[own];
                if is_within::<I>(number, valid) {
                    let column = u32::cast_from(number) as usize;
                    #[unroll]
                    for lane in 0..size {
                        let one_hot = select(first + lane == column, f32::new(1.0), f32::new(0.0));
                        share.insert(lane, share.extract(lane) - one_hot);
                    }
                }
                let mut result = share * Vector::<f32, N>::new(gradient[own]);
                if first + size > valid {
                    #[unroll]
                    for lane in 0..size {
                        let kept = select(first + lane >= valid, f32::new(0.0), result.extract(lane));
                        result.insert(lane, kept);
                    }
                }
                output[own * vectors + vector] = Vector::cast_from(result);
            }
        }
        row += ROWS_AT_ONCE * row_step();
    }
}

/// Returns whether a target is one of the shard's columns: compared in its own type, because it may not fit another.
#[cube]
fn is_within<I: Int>(number: I, valid: usize) -> bool {
    number >= I::from_int(0) && number < I::cast_from(valid)
}
