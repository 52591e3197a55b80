//! The second moment of matrices by rows and columns, and the direction that is made of it, of any piece of a
//! parameter.

use std::ops::Range;

use burn::tensor::{DType, Tensor};

use super::matrix::{embed, extract, slice};
use super::scaled;
use crate::data_parallel::{FactoredMoment, FactoredStep, SecondMoment, laid_out};
use crate::parameters::Factoring;

/// Returns the sums of the squares of a piece of a parameter by row and by column of the whole parameter, the rows'
/// before the columns', `[factoring.len()]`: what a rank adds to those of the others.
///
/// # Shapes
/// - `values`: `[range]`, of the elements of the local array
pub(super) fn sums_of_squares(values: Tensor<1>, factoring: &Factoring, range: &Range<usize>) -> Tensor<1> {
    let (device, dtype) = (values.device(), values.dtype());
    let window = factoring.window(range);
    let values = around(values, window.start, window.sizes.len());
    let squares = values.powi_scalar(2).reshape(window.sizes.shape());
    // Padding of the local array is zero, and its numbers are part of nothing.
    let rows = squares.clone().sum_dim(4).sum_dim(2).reshape([window.rows.len()]);
    let columns = squares.sum_dim(1).reshape([window.columns.len()]);
    let rows = laid_out(
        vec![(window.rows.start, rows)],
        factoring.local().num_rows(),
        dtype,
        &device,
    );
    let columns = laid_out(
        vec![(window.columns.start, columns)],
        factoring.local().num_columns(),
        dtype,
        &device,
    );
    Tensor::cat(
        vec![embed(rows, factoring.rows()), embed(columns, factoring.columns())],
        0,
    )
}

/// Returns the new moment of a parameter's rows and columns, of the [sums](sums_of_squares) of all its elements.
pub(super) fn factored_moment(
    sums: &Tensor<1>,
    factoring: &Factoring,
    before: Option<FactoredMoment>,
    share: f64,
) -> FactoredMoment {
    let sizes = factoring.logical();
    let num_rows = sizes.num_rows();
    let row_means = slice(sums, 0..num_rows).div_scalar((sizes.before * sizes.after) as f64);
    let column_means = slice(sums, num_rows..factoring.len()).div_scalar(sizes.rows as f64);
    let (rows, columns) = before.map(|moment| (moment.rows, moment.columns)).unzip();
    FactoredMoment {
        rows: mean(rows, row_means, share),
        columns: mean(columns, column_means, share),
    }
}

/// Returns a running mean, of which the new values count a share; nothing counts as zeros.
pub(super) fn mean<const D: usize>(before: Option<Tensor<D>>, values: Tensor<D>, share: f64) -> Tensor<D> {
    let fresh = scaled(values, share);
    match before {
        None => fresh,
        Some(before) => before.mul_scalar(1.0 - share) + fresh,
    }
}

/// The mean of squared gradients that a direction is made of.
#[derive(Clone, Debug)]
pub(super) enum MeanSquare {
    /// Mean of each element of the piece, `[range]`.
    Elements(Tensor<1>),
    /// Means of the rows and columns of the whole parameter.
    Factored(Box<Factoring>, FactoredMoment),
}

impl MeanSquare {
    /// Returns what the optimizer keeps of it.
    pub(super) fn moment(&self) -> SecondMoment<1> {
        match self {
            Self::Elements(moment) => SecondMoment::Elements(moment.clone()),
            Self::Factored(_, moment) => SecondMoment::Factored(moment.clone()),
        }
    }
}

/// Maker of the direction of a piece of a parameter of its gradient.
#[derive(Clone, Debug)]
pub(super) struct FactoredDirection {
    /// The number of the parameter.
    pub(super) number: usize,
    pub(super) step: FactoredStep,
    pub(super) mean_square: MeanSquare,
    /// The elements of the local array that the piece has.
    pub(super) range: Range<usize>,
}

impl FactoredDirection {
    /// Returns the direction next to a gradient, `[range]`: the gradient over the root of its mean square.
    pub(super) fn of(&self, gradient: Tensor<1>) -> Tensor<1> {
        let eps1 = self.step.eps1.unwrap_or_else(|| epsilon(gradient.dtype()));
        let gradient = scaled(gradient, self.step.gradient_scale);
        let variance = match &self.mean_square {
            MeanSquare::Elements(variance) => variance.clone(),
            MeanSquare::Factored(factoring, moment) => self.variance(moment, factoring, eps1),
        };
        gradient / variance.clamp_min(eps1 * eps1).sqrt()
    }

    /// The mean squares of the piece's elements, `[range]`: `rows · columns / mean(rows)`.
    fn variance(&self, moment: &FactoredMoment, factoring: &Factoring, eps1: f64) -> Tensor<1> {
        let window = factoring.window(&self.range);
        let [matrices, rows, before, fused, after] = window.sizes.shape();
        let all = factoring.logical();
        let by_matrix = moment.rows.clone().reshape([all.matrices, all.rows, all.fused]);
        let means = by_matrix.clone().mean_dim(1).clamp_min(eps1);
        let ratios = (by_matrix / means).reshape([all.num_rows()]);
        let ratios = slice(&extract(ratios, factoring.rows()), window.rows.clone());
        let columns = extract(moment.columns.clone(), factoring.columns());
        let columns = slice(&columns, window.columns.clone());
        let variance =
            ratios.reshape([matrices, rows, 1, fused, 1]) * columns.reshape([matrices, 1, before, fused, after]);
        let variance = variance.reshape([window.sizes.len()]);
        slice(&variance, window.start..window.start + self.range.len())
    }
}

/// Returns zeros, `[length]`, but for values from a place on; the values themselves if they are as long.
fn around(values: Tensor<1>, start: usize, length: usize) -> Tensor<1> {
    if values.dims()[0] == length {
        return values;
    }
    let (device, dtype) = (values.device(), values.dtype());
    laid_out(vec![(start, values)], length, dtype, &device)
}

/// The difference of 1 and the next larger number.
fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::EPSILON,
        _ => f64::from(f32::EPSILON),
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;
    use proptest::prelude::*;

    use super::*;
    use crate::parameters::Placement;

    fn numbers(count: usize) -> Tensor<1> {
        let values: Vec<f64> = (0..count).map(|index| ((index * 7 + 3) % 11) as f64 - 4.5).collect();
        Tensor::from_data(&values[..], (&Device::flex(), DType::F64))
    }

    fn values(tensor: Tensor<1>) -> Vec<f64> {
        tensor.into_data().try_to_vec().expect("f64")
    }

    /// The direction of a piece, of the sums over all elements.
    fn direction(sums: &Tensor<1>, factoring: &Factoring, range: Range<usize>) -> FactoredDirection {
        FactoredDirection {
            number: 0,
            step: FactoredStep {
                gradient_scale: 0.5,
                share: 1.0,
                rate: 1.0,
                keep: 1.0,
                eps1: None,
                eps2: 1e-3,
                clip_threshold: 1.0,
            },
            mean_square: MeanSquare::Factored(Box::new(factoring.clone()), factored_moment(sums, factoring, None, 1.0)),
            range,
        }
    }

    fn assert_near(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!(
                (found - expected).abs() <= 1e-12 * expected.abs(),
                "{found} for {expected}"
            );
        }
    }

    /// A matrix, or fused ones, of `[rows, before, fused, after]`, of which a dimension is cut over ranks, and the
    /// local array of each over others.
    fn compare_pieces(shape: [usize; 4], cut: usize, ranks: usize, pieces: usize) {
        let mut shape = shape;
        shape[cut] *= ranks;
        let placement_of = |rank| Placement::shard(&shape, cut, rank, ranks).with_fused_dimension(2);
        let factoring_of = |placement: &Placement| {
            let local = placement.local_shape();
            Factoring::of(&[local[0], local[1..].iter().product()], placement).expect("a matrix")
        };
        let whole = Placement::whole(shape).with_fused_dimension(2);
        let (gradient, of_whole) = (numbers(whole.logical_len()), factoring_of(&whole));
        let all = sums_of_squares(gradient.clone(), &of_whole, &(0..whole.logical_len()));
        let expected = direction(&all, &of_whole, 0..whole.logical_len()).of(gradient.clone());

        let held = |rank| {
            let placement = placement_of(rank);
            let length = placement.local_len();
            let ends = (0..=pieces).map(|piece| piece * length / pieces);
            let ranges: Vec<Range<usize>> = ends.clone().zip(ends.skip(1)).map(|(start, end)| start..end).collect();
            ranges
                .into_iter()
                .filter(|range| !range.is_empty())
                .map(move |range| (placement.clone(), range))
        };
        let held: Vec<(Placement, Range<usize>)> = (0..ranks).flat_map(held).collect();
        let part =
            |placement: &Placement, range: &Range<usize>| slice(&extract(gradient.clone(), placement), range.clone());
        let sums = held
            .iter()
            .map(|(placement, range)| sums_of_squares(part(placement, range), &factoring_of(placement), range));
        let sums = sums.reduce(|sums, others| sums + others).expect("there are pieces");
        assert_near(&values(sums.clone()), &values(all));
        for (placement, range) in held {
            let found = direction(&sums, &factoring_of(&placement), range.clone()).of(part(&placement, &range));
            let expected = slice(&extract(expected.clone(), &placement), range);
            assert_near(&values(found), &values(expected));
        }
    }

    proptest! {
        #[test]
        fn pieces_add_up_to_the_whole_and_move_as_it(
            shape in [1usize..5, 1usize..3, 1usize..4, 1usize..4], is_of_rows: bool, ranks in 1usize..4,
            pieces in 1usize..6,
        ) {
            compare_pieces(shape, if is_of_rows { 0 } else { 3 }, ranks, pieces);
        }
    }

    #[test]
    fn pieces_of_several_matrices_add_up() {
        let placement = Placement::whole([3, 2, 4]);
        let factoring = Factoring::of(&[3, 2, 4], &placement).expect("matrices");
        let gradient = numbers(24);
        let all = sums_of_squares(gradient.clone(), &factoring, &(0..24));
        let expected = values(direction(&all, &factoring, 0..24).of(gradient.clone()));
        let mut sums = all.zeros_like();
        for range in [0..5, 5..13, 13..24] {
            sums = sums + sums_of_squares(slice(&gradient, range.clone()), &factoring, &range);
            let found = direction(&all, &factoring, range.clone()).of(slice(&gradient, range.clone()));
            assert_near(&values(found), &expected[range]);
        }
        assert_near(&values(sums), &values(all));
    }

    #[test]
    fn fused_matrices_have_a_mean_each() {
        // Of the second matrix all is ten times as large: its direction is the same.
        let placement = Placement::whole([2, 2, 3]).with_fused_dimension(1);
        let factoring = Factoring::of(&[2, 6], &placement).expect("matrices");
        let first = numbers(6).reshape([2, 1, 3]);
        let both = Tensor::cat(vec![first.clone(), first.mul_scalar(10.0)], 1).reshape([12]);
        let sums = sums_of_squares(both.clone(), &factoring, &(0..12));
        let directions: Tensor<3> = direction(&sums, &factoring, 0..12).of(both).reshape([2, 2, 3]);
        let [first, second] = [0, 1].map(|matrix| values(directions.clone().narrow(1, matrix, 1).reshape([6])));
        assert_near(&first, &second);
    }
}
