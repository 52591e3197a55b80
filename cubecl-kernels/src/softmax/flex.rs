//! The softmax on the CPU.

use burn::tensor::Tensor;
use burn_flex::Flex;

use super::SoftmaxMask;
use crate::flex::blocks::{each_row, in_blocks};
use crate::flex::lanes::{Destination, map, mask, maximum, sum, sums};
use crate::flex::math::{Real, vectorised};
use crate::flex::number::{Number, with_number};
use crate::flex::tensor::{Place, flat, in_order};

/// Returns the probabilities.
pub fn forward(scores: Tensor<Flex, 4>, mask: SoftmaxMask<Flex>, scale: f64) -> Tensor<Flex, 4> {
    with_number!(scores.dtype(), T => forward_in::<T>(scores, mask, scale))
}

/// Returns the scores' gradient for that of the probabilities.
pub fn backward(output: Tensor<Flex, 4>, gradient: Tensor<Flex, 4>, scale: f64) -> Tensor<Flex, 4> {
    with_number!(output.dtype(), T => backward_in::<T>(output, gradient, scale))
}

fn forward_in<T: Number>(scores: Tensor<Flex, 4>, mask: SoftmaxMask<Flex>, scale: f64) -> Tensor<Flex, 4> {
    let dims @ [batch, heads, queries, keys] = scores.dims();
    let is_causal = matches!(mask, SoftmaxMask::Causal);
    let given = match mask {
        SoftmaxMask::Given(mask) => Some((mask.dims(), in_order(mask.into_primitive()))),
        SoftmaxMask::Nothing | SoftmaxMask::Causal => None,
    };
    let given = given.as_ref().map(|(dims, mask)| (dims, mask.storage::<u8>()));
    let masked_in = |row: usize| {
        given.map(|([mask_batch, mask_heads, ..], mask)| {
            let [sample, head, query] = [row / queries / heads, row / queries % heads, row % queries];
            let [sample, head] = [sample % mask_batch, head % mask_heads];
            &mask[((sample * mask_heads + head) * queries + query) * keys..][..keys]
        })
    };
    let scale = T::Real::of(scale);
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
                        let seen = if is_causal { row % queries + 1 } else { keys };
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
                                softmax(scores, scale);
                            },
                        );
                    },
                );
            },
        );
    });
    // SAFETY: every row was written, including what is after the query.
    unsafe { place.finish(dims) }
}

#[inline(always)]
fn mask_row<'a, R: Real>(scores: Destination<'a, R>, masked: &[u8]) -> &'a mut [R] {
    mask(scores, masked, R::NEG_INFINITY)
}

/// The row's probabilities; zeros where no score is above −∞.
#[inline(always)]
fn softmax<R: Real>(scores: Destination<'_, R>, scale: R) {
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

fn backward_in<T: Number>(output: Tensor<Flex, 4>, gradient: Tensor<Flex, 4>, scale: f64) -> Tensor<Flex, 4> {
    let dims @ [batch, heads, queries, keys] = output.dims();
    let output = flat(output);
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
    unsafe { place.finish(dims) }
}
