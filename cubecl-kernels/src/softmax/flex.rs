//! The softmax on the CPU.

use burn_flex::FlexTensor;

use super::Forward;
use crate::flex::blocks::{each_row, in_blocks};
use crate::flex::lanes::{Destination, map, mask, maximum, sum, sums};
use crate::flex::math::{Real, vectorised};
use crate::flex::number::{Number, with_number};
use crate::flex::tensor::{Place, dims, in_order};

/// Returns the probabilities.
pub fn forward(scores: FlexTensor, masked: Option<FlexTensor>, softmax: &Forward) -> FlexTensor {
    with_number!(scores.dtype(), T => forward_in::<T>(scores, masked, softmax))
}

/// Returns the scores' gradient for that of the probabilities.
pub fn backward(output: FlexTensor, gradient: FlexTensor, scale: f64) -> FlexTensor {
    with_number!(output.dtype(), T => backward_in::<T>(output, gradient, scale))
}

fn forward_in<T: Number>(scores: FlexTensor, masked: Option<FlexTensor>, softmax: &Forward) -> FlexTensor {
    let shape @ [batch, heads, queries, keys] = dims(&scores);
    let masked = masked.map(in_order);
    let masked = masked.as_ref().map(|masked| (dims(masked), masked.storage::<u8>()));
    let masked_in = |row: usize| {
        masked.map(|([mask_batch, mask_heads, _, _], masked)| {
            let [sample, head, query] = [row / queries / heads, row / queries % heads, row % queries];
            let [sample, head] = [sample % mask_batch, head % mask_heads];
            &masked[((sample * mask_heads + head) * queries + query) * keys..][..keys]
        })
    };
    let scale = T::Real::of(softmax.scale);
    let mut place = Place::<T>::over(scores);
    in_blocks([batch * heads * queries, keys], place.rows(keys), |range, rows| {
        vectorised(
            #[inline(always)]
            || {
                let mut buffer = Vec::new();
                each_row(
                    range,
                    rows,
                    #[inline(always)]
                    |row, scores| {
                        let seen = if softmax.is_causal { row % queries + 1 } else { keys };
                        T::through(
                            scores.values,
                            &mut buffer,
                            #[inline(always)]
                            |scores| {
                                let (scores, later) = scores.split(seen);
                                later.fill(T::Real::ZERO);
                                let scores = match masked_in(row) {
                                    Some(masked) => Destination::Over(mask_row(scores, masked)),
                                    None => scores,
                                };
                                probabilities(scores, scale);
                            },
                        );
                    },
                );
            },
        );
    });
    // SAFETY: every row was written, including what is after the query.
    unsafe { place.finish(shape) }
}

#[inline(always)]
fn mask_row<'a, R: Real>(scores: Destination<'a, R>, masked: &[u8]) -> &'a mut [R] {
    mask(scores, masked, R::NEG_INFINITY)
}

/// The row's probabilities; zeros where no score is above −∞.
#[inline(always)]
fn probabilities<R: Real>(scores: Destination<'_, R>, scale: R) {
    let largest = maximum(scores.source());
    // A NaN is passed over by the maximum, and shows in the results.
    if largest == R::NEG_INFINITY && scores.source().iter().all(|&score| score <= largest) {
        scores.fill(R::ZERO);
        return;
    }
    let shares = map(
        scores,
        [],
        #[inline(always)]
        |score, []| ((score - largest) * scale).exp(),
    );
    let factor = R::ONE / sum(shares);
    map(
        Destination::Over(shares),
        [],
        #[inline(always)]
        |share, []| share * factor,
    );
}

fn backward_in<T: Number>(output: FlexTensor, gradient: FlexTensor, scale: f64) -> FlexTensor {
    let shape @ [batch, heads, queries, keys] = dims(&output);
    let output = in_order(output);
    let output = output.storage::<T>();
    let scale = T::Real::of(scale);
    let mut place = Place::<T>::over(gradient);
    in_blocks([batch * heads * queries, keys], place.rows(keys), |range, rows| {
        vectorised(
            #[inline(always)]
            || {
                let mut buffers = [Vec::new(), Vec::new()];
                let [output_buffer, buffer] = &mut buffers;
                each_row(
                    range,
                    rows,
                    #[inline(always)]
                    |row, gradient| {
                        let output = T::read(&output[row * keys..][..keys], output_buffer);
                        T::through(
                            gradient.values,
                            buffer,
                            #[inline(always)]
                            |gradient| {
                                let inputs = [output, gradient.source()];
                                let [along] = sums(
                                    inputs,
                                    #[inline(always)]
                                    |[output, gradient]| [output * gradient],
                                );
                                map(
                                    gradient,
                                    [output],
                                    #[inline(always)]
                                    |gradient, [output]| output * (gradient - along) * scale,
                                );
                            },
                        );
                    },
                );
            },
        );
    });
    // SAFETY: every row was mapped.
    unsafe { place.finish(shape) }
}
