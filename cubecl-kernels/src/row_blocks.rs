//! `RowBlocks`: blocks of a matrix's rows.

use std::ops::Range;

/// Rows of a matrix: blocks of equal length, at equal distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowBlocks {
    /// The first row of the first block.
    pub first: usize,
    /// The rows of each block.
    pub rows: usize,
    /// Rows from the beginning of one block to that of the next.
    pub stride: usize,
    /// The number of blocks.
    pub count: usize,
}

impl RowBlocks {
    /// Returns the rows of one range.
    pub fn range(rows: Range<usize>) -> Self {
        Self {
            first: rows.start,
            rows: rows.len(),
            stride: rows.len(),
            count: 1,
        }
    }

    /// Returns all rows of a matrix of `count` blocks of `rows` rows, without gaps.
    pub fn adjacent(rows: usize, count: usize) -> Self {
        Self {
            first: 0,
            rows,
            stride: rows,
            count,
        }
    }

    /// Returns the rows of each block.
    pub fn ranges(self) -> impl Iterator<Item = Range<usize>> {
        (0..self.count).map(move |block| {
            let first = self.first + block * self.stride;
            first..first + self.rows
        })
    }
}
