//! SwiGLU on the CPU.

use burn_flex::FlexTensor;

use super::FAR;
use crate::flex::blocks::{Rows, each_row, in_blocks, uninit};
use crate::flex::lanes::{map, map_pairs};
use crate::flex::math::{Real, vectorised};
use crate::flex::number::{Number, with_number};
use crate::flex::tensor::{Place, dims, in_order, tensor};

/// Returns `silu(gate) ∘ up`.
pub fn forward(input: FlexTensor) -> FlexTensor {
    with_number!(input.dtype(), T => forward_in::<T>(input))
}

/// Returns the input's gradient for the output's.
pub fn backward(input: FlexTensor, gradient: FlexTensor) -> FlexTensor {
    with_number!(input.dtype(), T => backward_in::<T>(input, gradient))
}

fn forward_in<T: Number>(input: FlexTensor) -> FlexTensor {
    let [rows, both] = dims(&input);
    let columns = both / 2;
    let input = in_order(input);
    let input = input.storage::<T>();
    let mut output = uninit::<T>(rows * columns);
    in_blocks([rows, both], Rows::new(&mut output, columns), |range, rows| {
        vectorised(
            #[inline(always)]
            || {
                let mut buffers = [Vec::new(), Vec::new()];
                let [input_buffer, buffer] = &mut buffers;
                each_row(
                    range,
                    rows,
                    #[inline(always)]
                    |row, output| {
                        let input = T::read(&input[row * both..][..both], input_buffer);
                        let (gate, up) = input.split_at(columns);
                        T::make(
                            gate,
                            output.values,
                            buffer,
                            #[inline(always)]
                            |output| {
                                map(
                                    output,
                                    [up],
                                    #[inline(always)]
                                    |gate, [up]| {
                                        let gate = low(gate);
                                        gate * gate.sigmoid() * up
                                    },
                                );
                            },
                        );
                    },
                );
            },
        );
    });
    // SAFETY: every row was made.
    tensor(unsafe { output.assume_init() }.into_vec(), [rows, columns])
}

fn backward_in<T: Number>(input: FlexTensor, gradient: FlexTensor) -> FlexTensor {
    let shape @ [_, both] = dims(&input);
    let columns = both / 2;
    let gradient = in_order(gradient);
    let gradient = gradient.storage::<T>();
    let mut place = Place::<T>::over(input);
    in_blocks(shape, place.rows(both), |range, rows| {
        vectorised(
            #[inline(always)]
            || {
                let mut buffers = [Vec::new(), Vec::new()];
                let [gradient_buffer, buffer] = &mut buffers;
                each_row(
                    range,
                    rows,
                    #[inline(always)]
                    |row, input| {
                        let gradient = T::read(&gradient[row * columns..][..columns], gradient_buffer);
                        T::through(
                            input.values,
                            buffer,
                            #[inline(always)]
                            |input| {
                                let (gate, up) = input.split(columns);
                                map_pairs(
                                    [gate, up],
                                    [gradient],
                                    #[inline(always)]
                                    |[gate, up], [gradient]| {
                                        let gate = low(gate);
                                        let share = gate.sigmoid();
                                        let value = gate * share;
                                        // 1 − s is 0 of a gate that is not near.
                                        let near = if gate > T::Real::of(FAR) {
                                            T::Real::of(FAR)
                                        } else {
                                            gate
                                        };
                                        let slope = (near * share).mul_add(T::Real::ONE - share, share);
                                        [gradient * up * slope, gradient * value]
                                    },
                                );
                            },
                        );
                    },
                );
            },
        );
    });
    // SAFETY: every row was mapped, both halves of it.
    unsafe { place.finish(shape) }
}

/// The gate, not lower than `-FAR`, so that the share of −∞, 0, makes `silu` 0; NaN stays NaN.
#[inline(always)]
fn low<R: Real>(gate: R) -> R {
    if gate < R::of(-FAR) { R::of(-FAR) } else { gate }
}
