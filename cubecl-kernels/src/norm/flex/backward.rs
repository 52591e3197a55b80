//! The norms backward, of rows or of sums of rows.

use burn_flex::FlexTensor;

use super::read;
use crate::bias_dropout_add::flex::InputGradient;
use crate::flex::blocks::{Rows, add_up, each_row, in_blocks, uninit};
use crate::flex::lanes::{Destination, accumulate, map, sums};
use crate::flex::math::{Real, vectorised};
use crate::flex::number::Number;
use crate::flex::tensor::{Place, dims, in_order, rounded, tensor};
use crate::norm::Backward;
use crate::norm::NormKind;
use crate::operation::{Of, Operation};

/// Returns the gradients of rows and vectors for those of the sum, if it has one, and of the norm.
pub(super) fn backward_in<T: Number>(
    rule: &Backward,
    ((hidden, weight, (mean, reciprocal)), of_hidden, of_output): Of<<Backward as Operation>::Inputs, FlexTensor>,
) -> Of<<Backward as Operation>::Outputs, FlexTensor> {
    let shape @ [rows, columns] = dims(&hidden);
    let kind = if mean.is_some() { NormKind::Layer } else { NormKind::Rms };
    let [hidden, weight, reciprocals] = [hidden, weight, reciprocal].map(in_order);
    let [means, of_hidden] = [mean, of_hidden].map(|tensor| tensor.map(in_order));
    let (hidden, reciprocals) = (hidden.storage::<T>(), reciprocals.storage::<T::Real>());
    let means = means.as_ref().map(|means| means.storage::<T::Real>());
    let of_hidden = of_hidden.as_ref().map(|gradient| gradient.storage::<T>());
    let mut of_input = rule.dropout.is_some().then(|| uninit::<T>(rows * columns));
    let mut place = Place::<T>::over(of_output);
    let parts = (
        place.rows(columns),
        of_input.as_mut().map(|of_input| Rows::new(&mut of_input[..], columns)),
    );
    let sums = in_blocks(shape, parts, |range, parts| {
        let mut input = InputGradient::<T>::new(rule.has_addend_bias, rule.dropout.as_ref(), columns);
        let mut block = vectorised(
            #[inline(always)]
            || NormGradient::new(kind, read::<T>(&weight)),
        );
        vectorised(
            #[inline(always)]
            || {
                let mut buffers = [Vec::new(), Vec::new(), Vec::new()];
                let [hidden_buffer, of_hidden_buffer, buffer] = &mut buffers;
                each_row(
                    range,
                    parts,
                    #[inline(always)]
                    |row, (gradient, of_input)| {
                        let at_row = row * columns..(row + 1) * columns;
                        let hidden = T::read(&hidden[at_row.clone()], hidden_buffer);
                        let of_hidden = of_hidden.map(
                            #[inline(always)]
                            |gradient| T::read(&gradient[at_row], of_hidden_buffer),
                        );
                        let mean = means.map_or(T::Real::ZERO, |means| means[row]);
                        let statistics = [mean, reciprocals[row]];
                        T::through(
                            gradient.values,
                            buffer,
                            #[inline(always)]
                            |gradient| {
                                let gradient = block.row(gradient, hidden, of_hidden, statistics);
                                if of_input.is_some() || rule.has_addend_bias {
                                    let of_input = of_input.map(
                                        #[inline(always)]
                                        |of_input| of_input.values,
                                    );
                                    input.of(row, gradient, of_input);
                                }
                            },
                        );
                    },
                );
            },
        );
        [block.of_weight, block.of_bias, input.bias]
    });
    let total = |which: usize| {
        let sums = sums.iter().map(|sums| &sums[which][..]);
        rounded::<T, 1>(add_up(sums, columns), [columns])
    };
    let is_there = [true, rule.has_bias, rule.has_addend_bias];
    let vectors = (0..3).filter(|&which| is_there[which]).map(total).collect();
    // SAFETY: every row was mapped.
    let result = unsafe { place.finish(shape) };
    // SAFETY: every row was made.
    let of_input = of_input.map(|of_input| tensor(unsafe { of_input.assume_init() }.into_vec(), shape));
    ((result, of_input), vectors)
}

/// The gradients in the rows of a block.
struct NormGradient<R> {
    kind: NormKind,
    weight: Vec<R>,
    of_weight: Vec<R>,
    of_bias: Vec<R>,
}

impl<R: Real> NormGradient<R> {
    fn new(kind: NormKind, weight: Vec<R>) -> Self {
        let [of_weight, of_bias] = [(); 2].map(|()| vec![R::ZERO; weight.len()]);
        Self {
            kind,
            weight,
            of_weight,
            of_bias,
        }
    }

    /// Makes a row of the output's gradient that of the input, with the input's further gradient added to it.
    #[inline(always)]
    fn row<'r>(
        &mut self,
        gradient: Destination<'r, R>,
        input: &[R],
        further: Option<&[R]>,
        [mean, reciprocal]: [R; 2],
    ) -> &'r mut [R] {
        let source = gradient.source();
        accumulate(
            &mut self.of_weight,
            [source, input],
            #[inline(always)]
            |[gradient, x]| gradient * ((x - mean) * reciprocal),
        );
        accumulate(
            &mut self.of_bias,
            [source],
            #[inline(always)]
            |[gradient]| gradient,
        );
        let totals = sums(
            [source, input, &self.weight],
            #[inline(always)]
            |[gradient, x, weight]| {
                let weighted = gradient * weight;
                [weighted * ((x - mean) * reciprocal), weighted]
            },
        );
        let share = R::ONE / R::of(input.len() as f64);
        let [along, constant] = totals.map(
            #[inline(always)]
            |total| total * share,
        );
        let constant = match self.kind {
            NormKind::Layer => constant,
            NormKind::Rms => R::ZERO,
        };
        let moments = Moments {
            mean,
            reciprocal,
            along,
            constant,
        };
        match further {
            None => map(
                gradient,
                [input, &self.weight],
                #[inline(always)]
                |gradient, [x, weight]| moments.slope(gradient * weight, x),
            ),
            Some(further) => map(
                gradient,
                [input, &self.weight, further],
                #[inline(always)]
                |gradient, [x, weight, further]| moments.slope(gradient * weight, x) + further,
            ),
        }
    }
}

/// Numbers that a row's gradient depends on in addition to the element.
#[derive(Clone, Copy)]
struct Moments<R> {
    mean: R,
    reciprocal: R,
    /// The mean of the weighted gradients times the normal row.
    along: R,
    /// The mean of the weighted gradients; 0 for an RMS norm.
    constant: R,
}

impl<R: Real> Moments<R> {
    #[inline(always)]
    fn slope(self, weighted: R, x: R) -> R {
        (weighted - (x - self.mean) * self.reciprocal * self.along - self.constant) * self.reciprocal
    }
}
