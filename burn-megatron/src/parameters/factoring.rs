//! `Factoring`: which elements of a parameter make the rows and columns of its matrices, and which of them a rank
//! holds.
//!
//! Pure integers.

use std::ops::Range;

use super::Placement;

/// The rows and columns of a parameter's matrices, of which a number each says how large the elements are.
///
/// Of more than two dimensions the last two make matrices. Fused matrices have rows and columns of their own each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Factoring {
    /// `[matrices.., rows.., fused]`, this rank's part of the numbers of rows.
    rows: Placement,
    /// `[matrices.., columns..]`, the fused dimension among them: this rank's part of the numbers of columns.
    columns: Placement,
    local: MatrixSizes,
    logical: MatrixSizes,
}

/// An array of matrices, `[matrices, rows, before, fused, after]`: of each of the fused ones, a column is an element
/// of `before` and of `after`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MatrixSizes {
    pub(crate) matrices: usize,
    pub(crate) rows: usize,
    pub(crate) before: usize,
    pub(crate) fused: usize,
    pub(crate) after: usize,
}

/// The whole rows, or the whole matrices if there are several, that a range of the local array is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MatrixWindow {
    /// What is in it.
    pub(crate) sizes: MatrixSizes,
    /// Where the range begins in it.
    pub(crate) start: usize,
    /// Which of the local numbers of rows are its.
    pub(crate) rows: Range<usize>,
    /// Which of the local numbers of columns are its.
    pub(crate) columns: Range<usize>,
}

impl MatrixSizes {
    /// Returns the sizes, for a reshape.
    pub(crate) fn shape(&self) -> [usize; 5] {
        [self.matrices, self.rows, self.before, self.fused, self.after]
    }

    /// Returns how many numbers the rows have.
    pub(crate) fn num_rows(&self) -> usize {
        self.matrices * self.rows * self.fused
    }

    /// Returns how many numbers the columns have.
    pub(crate) fn num_columns(&self) -> usize {
        self.matrices * self.before * self.fused * self.after
    }

    /// Returns how many elements there are.
    pub(crate) fn len(&self) -> usize {
        self.shape().iter().product()
    }
}

impl Factoring {
    /// Returns that of a parameter of this shape on this rank; `None` if it is no matrix, or its layout does not say
    /// which of its dimensions are rows.
    pub(crate) fn of(shape: &[usize], placement: &Placement) -> Option<Self> {
        let num_dimensions = placement.local_shape().len();
        let (first, split) = match *shape {
            [] | [_] => return None,
            [rows, _] => (0, placement.row_dimensions(rows)?),
            _ if placement.local_shape() == shape => (num_dimensions - 2, num_dimensions - 1),
            _ => return None,
        };
        let fused = placement.fused_dimension().filter(|&dimension| dimension >= split);
        let sizes = |shape: &[usize]| {
            let product = |range: Range<usize>| shape[range].iter().product::<usize>();
            let (before, after) = match fused {
                None => (split..split, split..num_dimensions),
                Some(dimension) => (split..dimension, dimension + 1..num_dimensions),
            };
            MatrixSizes {
                matrices: product(0..first),
                rows: product(first..split),
                before: product(before),
                fused: fused.map_or(1, |dimension| shape[dimension]),
                after: product(after),
            }
        };
        Some(Self {
            rows: placement.of_dimensions((0..split).chain(fused)),
            columns: placement.of_dimensions((0..first).chain(split..num_dimensions)),
            local: sizes(placement.local_shape()),
            logical: sizes(placement.logical_shape()),
        })
    }

    /// This rank's part of the numbers of rows.
    pub(crate) fn rows(&self) -> &Placement {
        &self.rows
    }

    /// This rank's part of the numbers of columns.
    pub(crate) fn columns(&self) -> &Placement {
        &self.columns
    }

    /// The sizes of the local array.
    pub(crate) fn local(&self) -> MatrixSizes {
        self.local
    }

    /// The sizes of the whole parameter.
    pub(crate) fn logical(&self) -> MatrixSizes {
        self.logical
    }

    /// Returns how many numbers the rows and columns of the whole parameter have together.
    pub(crate) fn len(&self) -> usize {
        self.logical.num_rows() + self.logical.num_columns()
    }

    /// Returns the window around a range of the local array that is not empty.
    pub(crate) fn window(&self, range: &Range<usize>) -> MatrixWindow {
        let local = self.local;
        let is_of_matrices = local.matrices > 1;
        let outer = if is_of_matrices { local.matrices } else { local.rows };
        let inner = local.len() / outer;
        let (first, end) = (range.start / inner, range.end.div_ceil(inner));
        let start = range.start - first * inner;
        let count = end - first;
        if is_of_matrices {
            let part = |all: usize| first * (all / outer)..end * (all / outer);
            return MatrixWindow {
                sizes: MatrixSizes {
                    matrices: count,
                    ..local
                },
                start,
                rows: part(local.num_rows()),
                columns: part(local.num_columns()),
            };
        }
        MatrixWindow {
            sizes: MatrixSizes { rows: count, ..local },
            start,
            rows: first * local.fused..end * local.fused,
            columns: 0..local.num_columns(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fused_matrices_have_rows_of_their_own() {
        // [d_model 5, 3, heads 4, d_head 2], the second of two ranks.
        let placement = Placement::new([5, 3, 4, 2], [0, 0, 2, 0], [5, 3, 2, 2]).with_fused_dimension(1);
        let factoring = Factoring::of(&[5, 12], &placement).expect("a matrix");
        assert_eq!(factoring.len(), 5 * 3 + 3 * 8);
        assert_eq!(factoring.rows(), &Placement::whole([5, 3]));
        assert_eq!(factoring.columns(), &Placement::new([3, 4, 2], [0, 2, 0], [3, 2, 2]));
        assert_eq!(factoring.local().shape(), [1, 5, 1, 3, 4]);
        // Elements 13 to 30: rows 1 and 2 of 12.
        let window = factoring.window(&(13..30));
        assert_eq!((window.sizes.shape(), window.start), ([1, 2, 1, 3, 4], 1));
        assert_eq!((window.rows, window.columns), (3..9, 0..12));
    }

    #[test]
    fn rows_of_a_row_parallel_matrix_are_cut() {
        // [heads 4, d_head 3, d_model 5], the second of two ranks.
        let placement = Placement::new([4, 3, 5], [2, 0, 0], [2, 3, 5]);
        let factoring = Factoring::of(&[6, 5], &placement).expect("a matrix");
        assert_eq!(factoring.rows(), &Placement::new([4, 3], [2, 0], [2, 3]));
        assert_eq!(factoring.columns(), &Placement::whole([5]));
        assert_eq!(factoring.logical().shape(), [1, 12, 1, 1, 5]);
    }

    #[test]
    fn the_last_two_dimensions_of_several_make_matrices() {
        let factoring = Factoring::of(&[4, 2, 3], &Placement::whole([4, 2, 3])).expect("matrices");
        assert_eq!(factoring.len(), 4 * (2 + 3));
        // Elements 7 to 13: matrices 1 and 2.
        let window = factoring.window(&(7..13));
        assert_eq!((window.sizes.shape(), window.start), ([2, 2, 1, 1, 3], 1));
        assert_eq!((window.rows, window.columns), (2..6, 3..9));
    }

    #[test]
    fn vectors_have_no_rows() {
        assert_eq!(Factoring::of(&[4], &Placement::whole([4])), None);
        assert_eq!(Factoring::of(&[], &Placement::whole([])), None);
    }
}
