//! How messages are cut: into chunks, one after the other, and into slices, one for each of several ranks.

use std::ops::Range;

/// Slices of a chunk begin at cache lines, which also aligns them for every element.
pub(super) const LINE: usize = 64;

/// A message in parts of at most `size` bytes; an empty message has one empty part.
#[derive(Clone, Copy)]
pub(super) struct Chunks {
    length: usize,
    size: usize,
}

impl Chunks {
    pub fn new(length: usize, size: usize) -> Self {
        Self { length, size }
    }

    /// Returns how many there are.
    pub fn count(&self) -> usize {
        self.length.div_ceil(self.size).max(1)
    }

    /// Returns the place of one of them.
    pub fn range(&self, index: usize) -> Range<usize> {
        let start = index * self.size;
        start..start.saturating_add(self.size).min(self.length)
    }

    /// Returns the places of all, in order.
    pub fn ranges(self) -> impl Iterator<Item = Range<usize>> {
        (0..self.count()).map(move |index| self.range(index))
    }
}

/// Returns the slice number `index` of `length` bytes in `count` slices, which begin at multiples of `granule`.
pub(super) fn slice(length: usize, count: usize, granule: usize, index: usize) -> Range<usize> {
    let size = length.div_ceil(count).next_multiple_of(granule);
    (index * size).min(length)..((index + 1) * size).min(length)
}
