//! [`Region`]: which elements of a logical array a range of a local array holds, padding left out.
//!
//! Pure integers. Used to plan what is stored, to check that it is whole, and to find it again.

use std::ops::Range;

use crate::parameters::Placement;

/// The elements of a range of a local array that are part of the logical array: those that are stored, in the order of
/// the local array.
#[derive(Clone, Debug)]
pub(super) struct Region {
    /// The dimensions of the placement, joined where they are contiguous in both arrays. Never empty.
    dimensions: Vec<Dimension>,
    range: Range<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Dimension {
    logical: usize,
    /// At most `logical`.
    offset: usize,
    local: usize,
    /// How much of `local` is part of the logical array; the rest is padding.
    extent: usize,
}

impl Dimension {
    fn is_whole(&self) -> bool {
        self.local == self.logical && self.offset == 0
    }
}

/// A stretch of elements that are contiguous in both arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// Index of the first element in the local array.
    pub local: usize,
    /// Index of the first element in the logical array.
    pub logical: usize,
    /// Number of elements, at least one.
    pub length: usize,
}

impl Region {
    /// Returns the region of a range of the local array of `placement`.
    ///
    /// # Errors
    /// Sizes that are too large to count, or a range that ends beyond the local array.
    pub fn new(placement: &Placement, range: Range<usize>) -> Result<Self, String> {
        check_countable(placement.logical_shape())?;
        check_countable(placement.local_shape())?;
        let local_len = placement.local_len();
        if range.start > range.end || range.end > local_len {
            return Err(format!(
                "elements {} to {} of a local array of {local_len} elements, shape {:?}",
                range.start,
                range.end,
                placement.local_shape()
            ));
        }
        let mut dimensions: Vec<Dimension> = Vec::new();
        let sizes = placement.logical_shape().iter().zip(placement.offset());
        for ((&logical, &offset), &local) in sizes.zip(placement.local_shape()).rev() {
            let offset = offset.min(logical);
            let outer = Dimension {
                logical,
                offset,
                local,
                extent: local.min(logical - offset),
            };
            match dimensions.last_mut() {
                // None of the products is larger than those of the shapes.
                Some(inner) if inner.is_whole() => {
                    *inner = Dimension {
                        logical: outer.logical * inner.logical,
                        offset: outer.offset * inner.logical,
                        local: outer.local * inner.local,
                        extent: outer.extent * inner.extent,
                    }
                }
                _ => dimensions.push(outer),
            }
        }
        dimensions.reverse();
        if dimensions.is_empty() {
            dimensions.push(Dimension {
                logical: 1,
                offset: 0,
                local: 1,
                extent: 1,
            });
        }
        Ok(Self { dimensions, range })
    }

    /// The number of elements that are part of the logical array.
    pub fn stored_len(&self) -> usize {
        self.stored_before(self.range.end) - self.stored_before(self.range.start)
    }

    /// Whether the range holds all elements of the local array that are not padding.
    pub fn is_whole_box(&self) -> bool {
        self.stored_len() == self.dimensions.iter().map(|d| d.extent).product::<usize>()
    }

    /// Returns the stretches of the region, ascending in both arrays.
    pub fn segments(&self) -> Segments<'_> {
        Segments::new(self)
    }

    /// Returns the number of elements of the local array before `position` that are not padding.
    fn stored_before(&self, position: usize) -> usize {
        let mut local: usize = self.dimensions.iter().map(|d| d.local).product();
        let mut extent: usize = self.dimensions.iter().map(|d| d.extent).product();
        if extent == 0 {
            return 0;
        }
        let (mut rest, mut before) = (position, 0);
        for dimension in &self.dimensions {
            local /= dimension.local;
            extent /= dimension.extent;
            let index = rest / local;
            before += index.min(dimension.extent) * extent;
            if index >= dimension.extent {
                break;
            }
            rest %= local;
        }
        before
    }
}

/// Refuses a shape whose elements, or those of some of its dimensions, cannot be counted.
pub(super) fn check_countable(shape: &[usize]) -> Result<(), String> {
    // A dimension of 0 hides what the others would come to.
    let product = shape
        .iter()
        .try_fold(1_usize, |product, &size| product.checked_mul(size.max(1)));
    match product {
        // Their bytes must be countable, too.
        Some(product) if product <= isize::MAX as usize / 8 => Ok(()),
        _ => Err(format!("shape {shape:?} has more elements than can be counted")),
    }
}

/// Iterates over the rows of a region.
#[derive(Clone, Debug)]
pub(super) struct Segments<'a> {
    region: &'a Region,
    /// The row: an index for each dimension except the last; `None` after the last row.
    row: Option<Vec<usize>>,
    /// Where in the row to begin: not at 0 in the first row only.
    column: usize,
}

impl<'a> Segments<'a> {
    fn new(region: &'a Region) -> Self {
        let dimensions = &region.dimensions;
        let outer = dimensions.len() - 1;
        let mut segments = Segments {
            region,
            row: None,
            column: 0,
        };
        if region.range.is_empty() || dimensions.iter().any(|d| d.extent == 0) {
            return segments;
        }
        let mut index = vec![0; dimensions.len()];
        let mut rest = region.range.start;
        for (place, dimension) in index.iter_mut().zip(dimensions).rev() {
            *place = rest % dimension.local;
            rest /= dimension.local;
        }
        segments.column = index[outer];
        index.truncate(outer);
        segments.row = Some(index);
        // A range that begins in padding begins with the next row that is not.
        let padding = |row: &Vec<usize>| (0..outer).find(|&d| row[d] >= dimensions[d].extent);
        if let Some(d) = segments.row.as_ref().and_then(padding) {
            segments.column = 0;
            segments.advance(d);
        }
        segments
    }

    /// Goes to the next row that differs in a dimension before `end`.
    fn advance(&mut self, end: usize) {
        let Some(mut row) = self.row.take() else { return };
        row[end..].fill(0);
        for d in (0..end).rev() {
            row[d] += 1;
            if row[d] < self.region.dimensions[d].extent {
                self.row = Some(row);
                return;
            }
            row[d] = 0;
        }
    }
}

impl Iterator for Segments<'_> {
    type Item = Segment;

    fn next(&mut self) -> Option<Segment> {
        let (last, outer) = self.region.dimensions.split_last()?;
        loop {
            let row = self.row.as_ref()?;
            let (mut local, mut logical) = (0, 0);
            for (dimension, index) in outer.iter().zip(row) {
                local = local * dimension.local + index;
                logical = logical * dimension.logical + dimension.offset + index;
            }
            let column = std::mem::take(&mut self.column);
            let begin = local * last.local + column;
            let end = (local * last.local + last.extent).min(self.region.range.end);
            if begin >= self.region.range.end {
                self.row = None;
                return None;
            }
            self.advance(outer.len());
            if begin < end {
                return Some(Segment {
                    local: begin,
                    logical: logical * last.logical + last.offset + column,
                    length: end - begin,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Shapes with padding, boxes beyond the array, sizes of 0 and 1, and a range of the local array.
    fn regions() -> impl Strategy<Value = (Placement, Range<usize>)> {
        proptest::collection::vec((0usize..5, 0usize..6, 0usize..6), 0..5).prop_flat_map(|sizes| {
            let placement = Placement::new(
                sizes.iter().map(|s| s.0).collect::<Vec<_>>(),
                sizes.iter().map(|s| s.1).collect::<Vec<_>>(),
                sizes.iter().map(|s| s.2).collect::<Vec<_>>(),
            );
            let length = placement.local_len();
            (Just(placement), 0..=length, 0..=length).prop_map(|(p, a, b)| (p, a.min(b)..a.max(b)))
        })
    }

    proptest! {
        #[test]
        fn segments_are_the_runs_of_the_placement_inside_the_range((placement, range) in regions()) {
            let region = Region::new(&placement, range.clone()).unwrap();
            let expected: Vec<(usize, usize)> = placement
                .runs()
                .iter()
                .flat_map(|run| (0..run.length).map(|i| (run.local + i, run.logical + i)))
                .filter(|(local, _)| range.contains(local))
                .collect();
            let segments: Vec<Segment> = region.segments().collect();
            let found: Vec<(usize, usize)> = segments
                .iter()
                .flat_map(|segment| (0..segment.length).map(|i| (segment.local + i, segment.logical + i)))
                .collect();
            prop_assert_eq!(region.stored_len(), expected.len());
            prop_assert_eq!(found, expected);
            prop_assert!(segments.iter().all(|segment| segment.length > 0));
        }
    }

    #[test]
    fn whole_rows_are_one_segment() {
        let region = Region::new(&Placement::shard(&[6, 4, 5], 0, 1, 3), 0..40).unwrap();
        let expected = Segment {
            local: 0,
            logical: 40,
            length: 40,
        };
        assert_eq!(region.segments().collect::<Vec<_>>(), [expected]);
        assert!(region.is_whole_box());
    }

    #[test]
    fn sizes_that_cannot_be_counted_are_refused() {
        let huge = Placement::new([usize::MAX, 1], [0, 0], [usize::MAX, 2]);
        assert!(Region::new(&huge, 0..1).unwrap_err().contains("counted"));
        let hidden = Placement::whole([0, usize::MAX, 2]);
        assert!(Region::new(&hidden, 0..0).unwrap_err().contains("counted"));
        let far = Placement::new([4], [usize::MAX], [4]);
        assert_eq!(Region::new(&far, 0..4).unwrap().stored_len(), 0);
        let problem = Region::new(&Placement::whole([4]), 2..5).unwrap_err();
        assert_eq!(problem, "elements 2 to 5 of a local array of 4 elements, shape [4]");
    }

    #[test]
    fn a_small_range_of_a_huge_box_costs_little() {
        // Too many rows to enumerate.
        let placement = Placement::new([1 << 40, 2], [0, 0], [1 << 40, 1]);
        let region = Region::new(&placement, (1 << 39)..(1 << 39) + 3).unwrap();
        assert_eq!((region.stored_len(), region.segments().count()), (3, 3));
    }
}
