//! `ColumnShard`: which features of a whole activation a rank holds.

use std::ops::Range;

/// The columns of a whole activation that a rank holds, in the order in which it holds them.
///
/// A column-parallel layer has one: see
/// [`ColumnParallelLinear::column_shard`](crate::tensor_parallel::ColumnParallelLinear::column_shard).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnShard {
    ranges: Vec<Range<usize>>,
}

impl ColumnShard {
    /// Returns the `index`-th of `count` equal contiguous shards of `width` columns.
    ///
    /// # Panics
    /// When `count` does not divide `width`, or `index` is not below `count`.
    pub fn new(width: usize, index: usize, count: usize) -> Self {
        Self::of_fused(1, width, index, count)
    }

    /// Returns the same of `fused` activations of `width` columns each that are adjacent: a shard of each.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    pub fn of_fused(fused: usize, width: usize, index: usize, count: usize) -> Self {
        assert!(
            index < count && width.is_multiple_of(count),
            "shard {index} of {count} of {width} columns"
        );
        let length = width / count;
        let ranges = (0..fused).map(|part| {
            let first = part * width + index * length;
            first..first + length
        });
        Self {
            ranges: ranges.collect(),
        }
    }

    /// The ranges of columns of the whole, in the order in which they are stored here.
    pub fn ranges(&self) -> &[Range<usize>] {
        &self.ranges
    }

    /// The number of columns here.
    pub fn len(&self) -> usize {
        self.ranges.iter().map(ExactSizeIterator::len).sum()
    }

    /// Whether there is none here.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One more than the last column here, counted in the whole.
    pub(super) fn end(&self) -> usize {
        self.ranges.last().map_or(0, |range| range.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_of_fused_activations_has_a_range_of_each() {
        let shard = ColumnShard::of_fused(3, 10, 1, 2);
        assert_eq!(shard.ranges(), [5..10, 15..20, 25..30]);
        assert_eq!((shard.len(), shard.end()), (15, 30));
        assert_eq!(ColumnShard::new(10, 0, 1).ranges(), vec![Range { start: 0, end: 10 }]);
    }
}
