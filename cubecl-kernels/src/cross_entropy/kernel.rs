//! The kernels of the cross-entropy.

use cubecl::prelude::*;

use crate::cube::walk::{cube_max, cube_sum, first_row, own_column, row_step};

/// Writes each row's statistics; a cube for each row, of `units` units, a power of two.
///
/// In one pass: each unit keeps the largest logit that it has met and the sum of the exponentials under it, which
/// shrinks when a larger one comes. The largest starts at the smallest finite number, so that differences of −∞ do not
/// arise; a sum of 0 tells that all were −∞.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn statistics<F: Float, I: Int, N: Size>(
    logits: &Array<Vector<F, N>>,
    targets: &Array<I>,
    maximum: &mut Array<f32>,
    sum: &mut Array<f32>,
    target: &mut Array<f32>,
    rows: usize,
    vectors: usize,
    valid: usize,
    lowest: f32,
    #[comptime] units: usize,
    #[define(F, I)] _dtypes: [StorageType; 2],
) {
    let row = CUBE_POS;
    if row >= rows {
        terminate!();
    }
    let unit = UNIT_POS as usize;
    let number = targets[row];
    let is_here = is_within::<I>(number, valid);
    let mut target_column = 0usize;
    if is_here {
        target_column = u32::cast_from(number) as usize;
    } else if unit == 0 {
        target[row] = f32::new(0.0);
    }

    let size = N::value();
    let mut largest = f32::new(f32::MIN);
    let mut total = f32::new(0.0);
    let mut vector = unit;
    while vector * size < valid {
        let first = vector * size;
        let mut x = Vector::<f32, N>::cast_from(logits[row * vectors + vector]);
        if first + size > valid {
            #[unroll]
            for lane in 0..size {
                x[lane] = select(first + lane >= valid, lowest, x[lane]);
            }
        }
        if is_here && target_column >= first && target_column < first + size {
            #[unroll]
            for lane in 0..size {
                if first + lane == target_column {
                    target[row] = x[lane];
                }
            }
        }
        let mut now = largest;
        #[unroll]
        for lane in 0..size {
            now = max(now, x[lane]);
        }
        let terms = Vector::exp(x - Vector::<f32, N>::new(now));
        total *= f32::exp(largest - now);
        #[unroll]
        for lane in 0..size {
            total += terms[lane];
        }
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

/// Writes `(exp(x − maximum) / sum − onehot) · gradient`, and zeros into the padding. The output may be the logits.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn backward<F: Float, I: Int, N: Size>(
    logits: &Array<Vector<F, N>>,
    targets: &Array<I>,
    maximum: &Array<f32>,
    sum: &Array<f32>,
    gradient: &Array<f32>,
    output: &mut Array<Vector<F, N>>,
    rows: usize,
    vectors: usize,
    valid: usize,
    #[define(F, I)] _dtypes: [StorageType; 2],
) {
    let vector = own_column();
    if vector >= vectors {
        terminate!();
    }
    let size = N::value();
    let first = vector * size;
    let mut row = first_row();
    while row < rows {
        let at = row * vectors + vector;
        let x = Vector::<f32, N>::cast_from(logits[at]);
        let below = Vector::exp(x - Vector::<f32, N>::new(maximum[row]));
        let mut share = below / Vector::<f32, N>::new(sum[row]);
        let number = targets[row];
        if is_within::<I>(number, valid) {
            let column = u32::cast_from(number) as usize;
            #[unroll]
            for lane in 0..size {
                let one_hot = select(first + lane == column, f32::new(1.0), f32::new(0.0));
                share[lane] -= one_hot;
            }
        }
        let mut result = share * Vector::<f32, N>::new(gradient[row]);
        if first + size > valid {
            #[unroll]
            for lane in 0..size {
                result[lane] = select(first + lane >= valid, f32::new(0.0), result[lane]);
            }
        }
        output[at] = Vector::cast_from(result);
        row += row_step();
    }
}

/// Whether a target is one of the shard's columns: compared in its own type, because it may not fit another.
#[cube]
fn is_within<I: Int>(number: I, valid: usize) -> bool {
    number >= I::from_int(0) && number < I::cast_from(valid)
}
