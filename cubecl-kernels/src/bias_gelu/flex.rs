//! Bias and GELU on the CPU.

use burn_flex::FlexTensor;

use super::{CUBE, FAR, SLOPE};
use crate::flex::blocks::{add_up, each_row, in_blocks};
use crate::flex::lanes::{accumulate, map};
use crate::flex::math::{Real, vectorised};
use crate::flex::number::{Number, with_number};
use crate::flex::tensor::{Place, dims, in_order, rounded};

/// Returns `gelu(input + bias)`.
pub fn forward(input: FlexTensor, bias: FlexTensor) -> FlexTensor {
    with_number!(input.dtype(), T => forward_in::<T>(input, bias))
}

/// Returns the gradients for the output's.
pub fn backward(input: FlexTensor, bias: FlexTensor, gradient: FlexTensor) -> (FlexTensor, FlexTensor) {
    with_number!(input.dtype(), T => backward_in::<T>(input, bias, gradient))
}

fn forward_in<T: Number>(input: FlexTensor, bias: FlexTensor) -> FlexTensor {
    let shape @ [_, columns] = dims(&input);
    let bias = in_order(bias);
    let bias = bias.storage::<T>();
    let mut place = Place::<T>::over(input);
    in_blocks(shape, place.rows(columns), |range, rows| {
        vectorised(
            #[inline(always)]
            || {
                let mut buffers = [Vec::new(), Vec::new()];
                let [bias_buffer, buffer] = &mut buffers;
                let bias = T::read(bias, bias_buffer);
                each_row(
                    range,
                    rows,
                    #[inline(always)]
                    |_, row| {
                        T::through(
                            row.values,
                            buffer,
                            #[inline(always)]
                            |row| {
                                map(
                                    row,
                                    [bias],
                                    #[inline(always)]
                                    |input, [bias]| {
                                        let shares = Shares::at(input + bias);
                                        shares.low * shares.share
                                    },
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

fn backward_in<T: Number>(input: FlexTensor, bias: FlexTensor, gradient: FlexTensor) -> (FlexTensor, FlexTensor) {
    let shape @ [_, columns] = dims(&input);
    let [bias, input] = [in_order(bias), in_order(input)];
    let [bias, input] = [bias.storage::<T>(), input.storage::<T>()];
    let mut place = Place::<T>::over(gradient);
    let sums = in_blocks(shape, place.rows(columns), |range, rows| {
        let mut sums = vec![T::Real::ZERO; columns];
        vectorised(
            #[inline(always)]
            || {
                let mut buffers = [Vec::new(), Vec::new(), Vec::new()];
                let [bias_buffer, input_buffer, buffer] = &mut buffers;
                let bias = T::read(bias, bias_buffer);
                each_row(
                    range,
                    rows,
                    #[inline(always)]
                    |row, gradient| {
                        let input = T::read(&input[row * columns..][..columns], input_buffer);
                        T::through(
                            gradient.values,
                            buffer,
                            #[inline(always)]
                            |gradient| {
                                let result = map(
                                    gradient,
                                    [input, bias],
                                    #[inline(always)]
                                    |gradient, [input, bias]| gradient * Shares::at(input + bias).slope(),
                                );
                                accumulate(
                                    &mut sums,
                                    [result],
                                    #[inline(always)]
                                    |[result]| result,
                                );
                            },
                        );
                    },
                );
            },
        );
        sums
    });
    let bias = rounded::<T, 1>(add_up(sums.iter().map(Vec::as_slice), columns), [columns]);
    // SAFETY: every row was mapped.
    (unsafe { place.finish(shape) }, bias)
}

/// Parts of GELU at `x`.
struct Shares<R> {
    /// `x`, or where it is lower `-FAR`, so that the share of −∞, 0, makes the function 0.
    low: R,
    /// `x`, brought near enough to 0 that its cube is finite, which changes no share.
    x: R,
    square: R,
    /// `(1 + tanh u) / 2`, as `sigmoid(2u)`.
    share: R,
}

impl<R: Real> Shares<R> {
    #[inline(always)]
    fn at(x: R) -> Self {
        // By comparisons, which leave NaN as it is.
        let (lowest, highest) = (R::of(-FAR), R::of(FAR));
        let low = if x < lowest { lowest } else { x };
        let x = if low > highest { highest } else { low };
        let square = x * x;
        let share = (square.mul_add(R::of(CUBE * SLOPE), R::of(SLOPE)) * x).sigmoid();
        Self { low, x, square, share }
    }

    /// Returns GELU's derivative.
    #[inline(always)]
    fn slope(self) -> R {
        let inner = self.square.mul_add(R::of(3.0 * CUBE * SLOPE), R::of(SLOPE));
        (self.x * self.share * (R::ONE - self.share)).mul_add(inner, self.share)
    }
}
