//! The sum on the CPU, alone and as the first part of [`add_norm`](crate::norm::add_norm).

use burn_flex::FlexTensor;

use crate::flex::blocks::{Rows, add_up, each_row, in_blocks, uninit};
use crate::flex::dropout::factors;
use crate::flex::lanes::{Destination, accumulate, map};
use crate::flex::math::{Real, vectorised};
use crate::flex::number::{Number, with_number};
use crate::flex::tensor::{Place, dims, in_order, rounded, tensor};
use crate::random::RowDropout;

/// Returns the sum.
pub fn forward(
    input: FlexTensor,
    bias: Option<FlexTensor>,
    residual: FlexTensor,
    dropout: Option<&RowDropout>,
) -> FlexTensor {
    let others = Others::of(bias, residual, dropout);
    with_number!(input.dtype(), T => forward_in::<T>(input, &others))
}

/// Returns the input's gradient for the sum's, and the bias' if there is one.
pub fn backward(
    gradient: FlexTensor,
    has_bias: bool,
    dropout: Option<&RowDropout>,
) -> (FlexTensor, Option<FlexTensor>) {
    if !has_bias && dropout.is_none() {
        return (gradient, None);
    }
    with_number!(gradient.dtype(), T => backward_in::<T>(gradient, has_bias, dropout))
}

fn forward_in<T: Number>(input: FlexTensor, others: &Others<'_>) -> FlexTensor {
    let shape @ [_, columns] = dims(&input);
    let mut place = Place::<T>::over(input);
    in_blocks(shape, place.rows(columns), |range, rows| {
        vectorised(
            #[inline(always)]
            || {
                let mut others = others.rows::<T>(columns);
                let mut buffer = Vec::new();
                each_row(
                    range,
                    rows,
                    #[inline(always)]
                    |row, input| {
                        T::through(
                            input.values,
                            &mut buffer,
                            #[inline(always)]
                            |input| {
                                others.add(row, input);
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

/// Bias, residual and dropout of a sum.
pub(crate) struct Others<'a> {
    bias: Option<FlexTensor>,
    residual: FlexTensor,
    dropout: Option<&'a RowDropout>,
}

impl<'a> Others<'a> {
    pub fn of(bias: Option<FlexTensor>, residual: FlexTensor, dropout: Option<&'a RowDropout>) -> Self {
        Self {
            bias: bias.map(in_order),
            residual: in_order(residual),
            dropout,
        }
    }

    /// Returns the same for the rows of a block, which have `columns` columns.
    #[inline(always)]
    pub fn rows<T: Number>(&self, columns: usize) -> OtherRows<'_, T> {
        let bias = match &self.bias {
            Some(bias) => T::read(bias.storage(), &mut Vec::new()).to_vec(),
            None => vec![T::Real::ZERO; columns],
        };
        OtherRows {
            bias,
            residual: self.residual.storage(),
            buffer: Vec::new(),
            factors: RowFactors::new(self.dropout, columns),
        }
    }
}

/// Bias, residual and dropout of a block's rows; zeros for a bias that there is not.
pub(crate) struct OtherRows<'a, T: Number> {
    bias: Vec<T::Real>,
    residual: &'a [T],
    buffer: Vec<T::Real>,
    factors: RowFactors<'a, T::Real>,
}

impl<T: Number> OtherRows<'_, T> {
    /// Makes a row of the input the sum.
    #[inline(always)]
    pub fn add<'r>(&mut self, row: usize, input: Destination<'r, T::Real>) -> &'r mut [T::Real] {
        let columns = self.bias.len();
        let residual = T::read(&self.residual[row * columns..][..columns], &mut self.buffer);
        let factors = self.factors.of(row);
        map(
            input,
            [&self.bias, factors, residual],
            #[inline(always)]
            |input, [bias, factor, residual]| (input + bias) * factor + residual,
        )
    }
}

/// Factors of a row under dropout; ones without dropout.
pub(crate) struct RowFactors<'a, R> {
    dropout: Option<&'a RowDropout>,
    factors: Vec<R>,
}

impl<'a, R: Real> RowFactors<'a, R> {
    pub fn new(dropout: Option<&'a RowDropout>, columns: usize) -> Self {
        let factors = vec![R::ONE; columns];
        Self { dropout, factors }
    }

    #[inline(always)]
    pub fn of(&mut self, row: usize) -> &[R] {
        if let Some(dropout) = self.dropout {
            factors(dropout, row, 0, &mut self.factors);
        }
        &self.factors
    }
}

fn backward_in<T: Number>(
    gradient: FlexTensor,
    has_bias: bool,
    dropout: Option<&RowDropout>,
) -> (FlexTensor, Option<FlexTensor>) {
    let shape @ [rows, columns] = dims(&gradient);
    let gradient = in_order(gradient);
    let of_sum = gradient.storage::<T>();
    let mut output = dropout.is_some().then(|| uninit::<T>(rows * columns));
    let parts = output.as_mut().map(|output| Rows::new(&mut output[..], columns));
    let sums = in_blocks(shape, parts, |range, parts| {
        let mut input = InputGradient::<T>::new(has_bias, dropout, columns);
        vectorised(
            #[inline(always)]
            || {
                let mut buffer = Vec::new();
                each_row(
                    range,
                    parts,
                    #[inline(always)]
                    |row, output| {
                        let gradient = T::read(&of_sum[row * columns..][..columns], &mut buffer);
                        input.of(
                            row,
                            gradient,
                            output.map(
                                #[inline(always)]
                                |output| output.values,
                            ),
                        );
                    },
                );
            },
        );
        input.bias
    });
    // SAFETY: every row was made.
    let input = output.map(|output| tensor(unsafe { output.assume_init() }.into_vec(), shape));
    let bias = has_bias.then(|| rounded::<T, 1>(add_up(sums.iter().map(Vec::as_slice), columns), [columns]));
    (input.unwrap_or(gradient), bias)
}

/// The gradient of the input in the rows of a block, and the bias's sum over them.
pub(crate) struct InputGradient<'a, T: Number> {
    has_bias: bool,
    factors: RowFactors<'a, T::Real>,
    buffer: Vec<T::Real>,
    pub bias: Vec<T::Real>,
}

impl<'a, T: Number> InputGradient<'a, T> {
    pub fn new(has_bias: bool, dropout: Option<&'a RowDropout>, columns: usize) -> Self {
        Self {
            has_bias,
            factors: RowFactors::new(dropout, columns),
            buffer: Vec::new(),
            bias: vec![T::Real::ZERO; columns],
        }
    }

    /// Makes a row of the gradient for that of the sum; without an output, where they are the same, only adds it up.
    #[inline(always)]
    pub fn of(&mut self, row: usize, gradient: &[T::Real], output: Option<&mut [std::mem::MaybeUninit<T>]>) {
        let Some(output) = output else {
            accumulate(
                &mut self.bias,
                [gradient],
                #[inline(always)]
                |[gradient]| gradient,
            );
            return;
        };
        let factors = self.factors.of(row);
        if self.has_bias {
            accumulate(
                &mut self.bias,
                [gradient, factors],
                #[inline(always)]
                |[gradient, factor]| gradient * factor,
            );
        }
        T::make(
            gradient,
            output,
            &mut self.buffer,
            #[inline(always)]
            |output| {
                map(
                    output,
                    [factors],
                    #[inline(always)]
                    |gradient, [factor]| gradient * factor,
                );
            },
        );
    }
}
