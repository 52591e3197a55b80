//! [`RowChunks`]: the rows of a matrix in chunks, which are moved one after the other.

use std::ops::Range;

use cubecl_kernels::linear::blocks::RowBlocks;

/// Rows to which the lengths of chunks are rounded if there are enough: matmuls compute that many at once.
pub const CHUNK_ROWS: usize = 128;

/// This rank's rows, cut into chunks in order.
///
/// The ranks hold equally many. A chunk of all of them is a block of rows of each rank: the same rows of its own, so
/// that what was gathered of a chunk is not adjacent in the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowChunks {
    rows: usize,
    count: usize,
}

impl RowChunks {
    /// Returns all rows as one chunk.
    pub fn whole(rows: usize) -> Self {
        Self { rows, count: 1 }
    }

    /// Returns the rows in `count` chunks, or in one of each row where there are fewer.
    pub fn new(rows: usize, count: usize) -> Self {
        Self {
            rows,
            count: count.clamp(1, rows.max(1)),
        }
    }

    /// Whether there is one chunk only.
    pub fn is_whole(self) -> bool {
        self.count == 1
    }

    /// This rank's rows.
    pub fn rows(self) -> usize {
        self.rows
    }

    /// This rank's rows of each chunk; none is empty unless there are no rows.
    pub fn ranges(self) -> Vec<Range<usize>> {
        let Self { rows, count } = self;
        let unit = if rows >= count * CHUNK_ROWS { CHUNK_ROWS } else { 1 };
        let end = |chunk: usize| match chunk {
            chunk if chunk == count => rows,
            chunk => rows * chunk / count / unit * unit,
        };
        (0..count).map(|chunk| end(chunk)..end(chunk + 1)).collect()
    }

    /// Where the rows of a chunk are among those of all `ranks`.
    pub(super) fn blocks(self, range: &Range<usize>, ranks: usize) -> RowBlocks {
        RowBlocks {
            first: range.start,
            rows: range.len(),
            stride: self.rows,
            count: ranks,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn chunks_cover_the_rows_once_and_in_order(rows in 0_usize..5000, count in 0_usize..20) {
            let ranges = RowChunks::new(rows, count).ranges();
            prop_assert_eq!(ranges.first().map(|range| range.start), Some(0));
            prop_assert_eq!(ranges.last().map(|range| range.end), Some(rows));
            prop_assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
            prop_assert!(rows == 0 || ranges.iter().all(|range| !range.is_empty()));
            prop_assert!(ranges.len() <= count.max(1));
        }

        #[test]
        fn blocks_of_all_chunks_are_all_rows(rows in 1_usize..300, count in 1_usize..9, ranks in 1_usize..9) {
            let chunks = RowChunks::new(rows, count);
            let blocks = chunks.ranges().into_iter().flat_map(|range| chunks.blocks(&range, ranks).ranges());
            let mut found: Vec<usize> = blocks.flatten().collect();
            found.sort_unstable();
            prop_assert_eq!(found, (0..rows * ranks).collect::<Vec<_>>());
        }
    }
}
