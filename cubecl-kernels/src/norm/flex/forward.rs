//! The norms forward, of rows or of sums of rows.

use burn_flex::FlexTensor;

use super::read;
use crate::bias_dropout_add::flex::Others;
use crate::flex::blocks::{Rows, each_row, in_blocks, uninit};
use crate::flex::lanes::{Destination, map, sum, sums};
use crate::flex::math::{Real, vectorised};
use crate::flex::number::Number;
use crate::flex::tensor::{Place, dims, tensor};
use crate::norm::NormKind;
use crate::norm::{Forward, Statistics};
use crate::operation::{Of, Operation};

/// A norm's parameters.
pub(super) struct Parameters {
    pub kind: NormKind,
    pub epsilon: f64,
    pub weight: FlexTensor,
    pub bias: Option<FlexTensor>,
}

/// A norm, for the rows of a block.
struct Norm<R> {
    kind: NormKind,
    epsilon: R,
    weight: Vec<R>,
    bias: Vec<R>,
}

impl<R: Real> Norm<R> {
    #[inline(always)]
    fn of<T: Number<Real = R>>(parameters: &Parameters) -> Self {
        Self {
            kind: parameters.kind,
            epsilon: R::of(parameters.epsilon),
            weight: read::<T>(&parameters.weight),
            // Zeros for a bias that there is not.
            bias: match &parameters.bias {
                Some(bias) => read::<T>(bias),
                None => vec![R::ZERO; parameters.weight.layout().num_elements()],
            },
        }
    }

    /// Returns the mean, 0 for an RMS norm, and the reciprocal of the standard deviation.
    #[inline(always)]
    fn statistics(&self, row: &[R]) -> [R; 2] {
        let share = R::ONE / R::of(row.len() as f64);
        let mean = match self.kind {
            NormKind::Layer => sum(row) * share,
            NormKind::Rms => R::ZERO,
        };
        let [squares] = sums(
            [row],
            #[inline(always)]
            |[x]| {
                let distance = x - mean;
                [distance * distance]
            },
        );
        [mean, R::ONE / (squares * share + self.epsilon).sqrt()]
    }

    #[inline(always)]
    fn apply(&self, row: Destination<'_, R>, [mean, reciprocal]: [R; 2]) {
        map(
            row,
            [&self.weight, &self.bias],
            #[inline(always)]
            |x, [weight, bias]| (x - mean) * reciprocal * weight + bias,
        );
    }
}

/// The rows' statistics, while they are being written.
struct RowStatistics<R> {
    kind: NormKind,
    mean: Vec<R>,
    reciprocal: Vec<R>,
}

impl<R: Real + Number> RowStatistics<R> {
    fn new(kind: NormKind, rows: usize) -> Self {
        let [mean, reciprocal] = [(); 2].map(|()| vec![R::ZERO; rows]);
        Self { kind, mean, reciprocal }
    }

    fn rows(&mut self) -> (Rows<&mut [R]>, Rows<&mut [R]>) {
        (Rows::new(&mut self.mean, 1), Rows::new(&mut self.reciprocal, 1))
    }

    fn finish(self) -> Of<Statistics, FlexTensor> {
        let rows = self.mean.len();
        let mean = (self.kind == NormKind::Layer).then(|| tensor(self.mean, [rows]));
        (mean, tensor(self.reciprocal, [rows]))
    }
}

/// Returns the norm of each row, and the rows' statistics.
pub(super) fn forward_in<T: Number>(
    input: FlexTensor,
    parameters: &Parameters,
) -> Of<<Forward as Operation>::Outputs, FlexTensor> {
    let shape @ [rows, columns] = dims(&input);
    let mut statistics = RowStatistics::<T::Real>::new(parameters.kind, rows);
    let mut place = Place::<T>::over(input);
    let parts = (place.rows(columns), statistics.rows());
    in_blocks(shape, parts, |range, parts| {
        vectorised(
            #[inline(always)]
            || {
                let norm = Norm::of::<T>(parameters);
                let mut buffer = Vec::new();
                each_row(
                    range,
                    parts,
                    #[inline(always)]
                    |_, (input, (mean, reciprocal))| {
                        T::through(
                            input.values,
                            &mut buffer,
                            #[inline(always)]
                            |input| {
                                let statistics = norm.statistics(input.source());
                                [mean.values[0], reciprocal.values[0]] = statistics;
                                norm.apply(input, statistics);
                            },
                        );
                    },
                );
            },
        );
    });
    // SAFETY: every row was mapped.
    (None, unsafe { place.finish(shape) }, statistics.finish())
}

/// Returns the sum, its norm, and the rows' statistics.
pub(super) fn add_forward_in<T: Number>(
    input: FlexTensor,
    others: &Others<'_>,
    parameters: &Parameters,
) -> Of<<Forward as Operation>::Outputs, FlexTensor> {
    let shape @ [rows, columns] = dims(&input);
    let mut statistics = RowStatistics::<T::Real>::new(parameters.kind, rows);
    let mut hidden = Place::<T>::over(input);
    let mut output = uninit::<T>(rows * columns);
    let parts = (
        hidden.rows(columns),
        Rows::new(&mut output[..], columns),
        statistics.rows(),
    );
    in_blocks(shape, parts, |range, parts| {
        vectorised(
            #[inline(always)]
            || {
                let norm = Norm::of::<T>(parameters);
                let mut others = others.rows::<T>(columns);
                let mut buffers = [Vec::new(), Vec::new()];
                let [buffer, output_buffer] = &mut buffers;
                each_row(
                    range,
                    parts,
                    #[inline(always)]
                    |row, (input, output, (mean, reciprocal))| {
                        T::through(
                            input.values,
                            buffer,
                            #[inline(always)]
                            |input| {
                                let hidden = others.add(row, input);
                                // The norm is that of the sum as the next layer sees it.
                                T::round(hidden);
                                let statistics = norm.statistics(hidden);
                                [mean.values[0], reciprocal.values[0]] = statistics;
                                T::make(
                                    hidden,
                                    output.values,
                                    output_buffer,
                                    #[inline(always)]
                                    |output| norm.apply(output, statistics),
                                );
                            },
                        );
                    },
                );
            },
        );
    });
    // SAFETY: every row was mapped.
    let hidden = unsafe { hidden.finish(shape) };
    // SAFETY: every row was made.
    let output = tensor(unsafe { output.assume_init() }.into_vec(), shape);
    (Some(hidden), output, statistics.finish())
}
