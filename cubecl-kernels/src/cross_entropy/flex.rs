//! The cross-entropy of a shard on the CPU.

use burn_flex::FlexTensor;

use crate::flex::blocks::{Rows, each_row, in_blocks};
use crate::flex::lanes::{map, maximum, sums};
use crate::flex::math::{Real, vectorised};
use crate::flex::number::{Number, with_number};
use crate::flex::tensor::{Place, dims, in_order, tensor};

/// Returns each row's statistics.
pub fn statistics(logits: FlexTensor, targets: FlexTensor, valid: usize) -> [FlexTensor; 3] {
    with_number!(logits.dtype(), T => statistics_in::<T>(logits, targets, valid))
}

/// Returns the logits' gradient for that of the rows' losses, over the logits if nothing else holds them.
pub fn backward(logits: FlexTensor, targets: FlexTensor, valid: usize, of_rows: [FlexTensor; 3]) -> FlexTensor {
    with_number!(logits.dtype(), T => backward_in::<T>(logits, targets, valid, of_rows))
}

fn statistics_in<T: Number>(logits: FlexTensor, targets: FlexTensor, valid: usize) -> [FlexTensor; 3] {
    let shape @ [rows, columns] = dims(&logits);
    let (logits, targets) = (in_order(logits), local(targets, valid));
    let logits = logits.storage::<T>();
    let [mut maxima, mut totals, mut at_target] = [(); 3].map(|()| vec![T::Real::ZERO; rows]);
    let parts = (
        Rows::new(&mut maxima[..], 1),
        Rows::new(&mut totals[..], 1),
        Rows::new(&mut at_target[..], 1),
    );
    in_blocks(shape, parts, |range, parts| {
        vectorised(
            #[inline(always)]
            || {
                let mut buffer = Vec::new();
                each_row(
                    range,
                    parts,
                    #[inline(always)]
                    |row, (largest, total, at_target)| {
                        let logits = T::read(&logits[row * columns..][..valid], &mut buffer);
                        [largest.values[0], total.values[0]] = row_statistics(logits);
                        if let Some(target) = targets[row] {
                            at_target.values[0] = logits[target];
                        }
                    },
                );
            },
        );
    });
    [maxima, totals, at_target].map(|values| tensor::<T::Real, 1>(values, [rows]))
}

/// The largest logit, and the sum of the exponentials below it.
#[inline(always)]
fn row_statistics<R: Real>(logits: &[R]) -> [R; 2] {
    let largest = maximum(logits);
    // A NaN is passed over by the maximum, and shows in the sum.
    if largest == R::NEG_INFINITY && logits.iter().all(|&logit| logit <= largest) {
        return [largest, R::ZERO];
    }
    let [total] = sums(
        [logits],
        #[inline(always)]
        |[logit]| [(logit - largest).exp()],
    );
    [largest, total]
}

fn backward_in<T: Number>(
    logits: FlexTensor,
    targets: FlexTensor,
    valid: usize,
    of_rows: [FlexTensor; 3],
) -> FlexTensor {
    let shape @ [_, columns] = dims(&logits);
    let targets = local(targets, valid);
    let of_rows = of_rows.map(in_order);
    let [maximum, sum, gradient] = of_rows.each_ref().map(|values| values.storage::<T::Real>());
    let mut place = Place::<T>::over(logits);
    in_blocks(shape, place.rows(columns), |range, rows| {
        vectorised(
            #[inline(always)]
            || {
                let mut buffer = Vec::new();
                each_row(
                    range,
                    rows,
                    #[inline(always)]
                    |row, logits| {
                        let (maximum, gradient) = (maximum[row], gradient[row]);
                        let factor = gradient / sum[row];
                        let (logits, padding) = logits.values.split(valid);
                        padding.fill(T::zeroed());
                        T::through(
                            logits,
                            &mut buffer,
                            #[inline(always)]
                            |logits| {
                                let target = targets[row].map(|target| (target, logits.source()[target]));
                                let result = map(
                                    logits,
                                    [],
                                    #[inline(always)]
                                    |logit, []| (logit - maximum).exp() * factor,
                                );
                                if let Some((target, logit)) = target {
                                    result[target] = (logit - maximum).exp() * factor - gradient;
                                }
                            },
                        );
                    },
                );
            },
        );
    });
    // SAFETY: every row was mapped up to `valid` and filled from there on.
    unsafe { place.finish(shape) }
}

/// The targets' columns, none for those outside the shard.
fn local(targets: FlexTensor, valid: usize) -> Vec<Option<usize>> {
    let targets = targets.into_data();
    let column = |target: i64| usize::try_from(target).ok().filter(|&target| target < valid);
    targets.iter::<i64>().map(column).collect()
}
