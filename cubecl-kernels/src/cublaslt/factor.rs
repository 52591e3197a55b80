//! [`Factor`]: a matrix's memory layout, as cuBLASLt takes it.

/// A factor of a matmul, for a library whose matrices are column-major.
///
/// Our rows are its columns. So it computes the transposed product, from the transposed factors in the other order: a
/// row-major factor is taken as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Factor {
    /// The length of a column in memory.
    pub rows: usize,
    /// The columns in memory.
    pub columns: usize,
    /// From the beginning of a column to that of the next, in numbers.
    pub leading: usize,
    /// Whether it is taken transposed.
    pub is_transposed: bool,
}

impl Factor {
    /// Returns how a matrix with these strides, in numbers, is taken. `None` if neither its rows nor its columns are
    /// contiguous.
    pub fn of([rows, columns]: [usize; 2], [row_stride, column_stride]: [usize; 2]) -> Option<Self> {
        // The stride of a single row or column is not used.
        let is_row_by_row = (column_stride == 1 || columns == 1) && (row_stride >= columns || rows == 1);
        let is_column_by_column = (row_stride == 1 || rows == 1) && (column_stride >= rows || columns == 1);
        match (is_row_by_row, is_column_by_column) {
            (true, _) => Some(Self {
                rows: columns,
                columns: rows,
                leading: if rows == 1 { columns } else { row_stride },
                is_transposed: false,
            }),
            (false, true) => Some(Self {
                rows,
                columns,
                leading: if columns == 1 { rows } else { column_stride },
                is_transposed: true,
            }),
            (false, false) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where in memory the number of row `row` and column `column` of ours is read.
    fn place(factor: Factor, row: usize, column: usize) -> usize {
        // What the library sees is transposed.
        let (down, right) = if factor.is_transposed {
            (row, column)
        } else {
            (column, row)
        };
        assert!(down < factor.rows && right < factor.columns && factor.leading >= factor.rows);
        down + right * factor.leading
    }

    #[test]
    fn every_number_is_read_from_its_place() {
        let mut taken = 0;
        for shape in [[1, 1], [1, 5], [5, 1], [3, 4], [4, 3]] {
            for strides in [
                [1, 1],
                [1, 3],
                [1, 4],
                [3, 1],
                [4, 1],
                [5, 1],
                [1, 5],
                [8, 1],
                [1, 8],
                [0, 1],
                [1, 0],
                [2, 7],
            ] {
                let Some(factor) = Factor::of(shape, strides) else {
                    continue;
                };
                taken += 1;
                for row in 0..shape[0] {
                    for column in 0..shape[1] {
                        let expected = row * strides[0] + column * strides[1];
                        assert_eq!(
                            place(factor, row, column),
                            expected,
                            "{shape:?} with strides {strides:?}"
                        );
                    }
                }
            }
        }
        assert!(taken > 30, "{taken} were taken");
    }

    #[test]
    fn what_is_spread_out_or_repeated_is_not_taken() {
        assert_eq!(Factor::of([3, 4], [8, 2]), None);
        assert_eq!(Factor::of([3, 4], [0, 1]), None, "one row, three times");
        assert_eq!(Factor::of([3, 4], [3, 1]), None, "rows that overlap");
    }
}
