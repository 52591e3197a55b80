//! Parts of both backward kernels: the gradient of one vector, and which sums over the rows are wanted.

use cubecl::prelude::*;

use crate::cube::dropout::{DroppedRows, dropout_factors, dropout_row};

/// Terms of the gradient of the norm's input in addition to that of the norm, and dropout.
///
/// If the norm follows a sum, `of_hidden` is the sum's own gradient, `result` that of the residual, and `of_input` that
/// of what dropout was applied to; without dropout they are the same, and `of_input` is not written.
#[derive(CubeType, CubeLaunch)]
pub(in super::super) struct Before<E: Float, N: Size> {
    pub of_hidden: ComptimeOption<Box<[Vector<E, N>]>>,
    pub dropped: ComptimeOption<DroppedRows>,
}

/// Sums over the rows that are wanted in addition to the weight's, in this order; part of a kernel's specialisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in super::super) struct RowSums {
    /// For the norm's bias.
    pub bias: bool,
    /// For the addend's bias.
    pub addend: bool,
}

impl RowSums {
    /// Returns the number of the addend's among all.
    pub fn of_addend(self) -> usize {
        if self.bias { 2 } else { 1 }
    }

    /// Returns the number of sums, the weight's included.
    pub fn count(self) -> usize {
        1 + usize::from(self.bias) + usize::from(self.addend)
    }
}

/// Adds the sum's own gradient to a vector of a row, applies dropout backward, and returns what the bias's gradient is
/// a sum of; the vector before dropout comes first.
#[cube]
pub(super) fn through_sum<E: Float, N: Size>(
    of_norm: Vector<f32, N>,
    before: &Before<E, N>,
    row: usize,
    place: usize,
    index: usize,
) -> (Vector<E, N>, Vector<f32, N>) {
    let mut total = of_norm;
    #[comptime]
    if let ComptimeOption::Some(of_hidden) = &before.of_hidden {
        total += Vector::cast_from(of_hidden[place]);
    }
    let rounded = Vector::<E, N>::cast_from(total);
    let mut of_sum = Vector::<f32, N>::cast_from(rounded);
    #[comptime]
    if let ComptimeOption::Some(dropped) = &before.dropped {
        let dropout_row = dropout_row(dropped, row, 0u32);
        of_sum *= dropout_factors::<N>(&dropped.dropout, &dropout_row, (index * N::value()) as u32);
    }
    (rounded, of_sum)
}
