//! `RowDropout`: which elements of which rows fall, by their place in the model and in the global batch alone.
//!
//! The same on the host and in kernels: the counter of an element is made of its column, head, position, sample and
//! iteration, and the generator's key of what the caller calls the site. Rows are the tokens of an activation, or
//! the queries of attention.

use std::ops::Range;
use std::sync::Arc;

use super::philox::philox4x32_10;
use crate::error::{Check, KernelError};

/// Bits of the counter's first word that number the blocks of four columns; heads take the rest.
pub const BLOCK_BITS: u32 = 20;

/// One row's place: which sample of the whole run, and where in it. Samples wrap after 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowPlace {
    /// The position in the sample.
    pub position: u32,
    /// The sample's number.
    pub sample: u32,
}

/// The dropout of a site in a step: made again at any time, it drops the same elements.
#[derive(Clone, Debug)]
pub struct RowDropout {
    /// The generator's key: one for each site.
    pub key: [u32; 2],
    /// The optimiser step; wraps after 2^32.
    pub iteration: u32,
    /// The number in the model of the first head; 0 outside attention.
    pub first_head: u32,
    /// The probability with which an element becomes zero, in `[0, 1)`.
    pub probability: f64,
    /// The rows' places, in order; in attention those of the queries, sample by sample.
    pub places: Arc<[RowPlace]>,
}

impl RowDropout {
    /// Returns the dropout of a range of the rows.
    pub fn of(&self, rows: Range<usize>) -> Self {
        Self {
            places: self.places[rows].into(),
            ..self.clone()
        }
    }

    /// Returns the factor of kept elements, which keeps the mean: `1 / (1 - probability)`.
    pub fn scale(&self) -> f64 {
        1.0 / (1.0 - self.probability)
    }

    /// An element falls where its random word is below this: the probability, exact to 2^-32 and rounded down.
    pub fn threshold(&self) -> u32 {
        (self.probability * 4_294_967_296.0) as u32
    }

    /// Returns the counter's words after the first one, for a row.
    pub fn row_words(&self, row: usize) -> [u32; 3] {
        let RowPlace { position, sample } = self.places[row];
        [position, sample, self.iteration]
    }

    /// The random words of columns `4 * block ..` of a row; `head` counts from [`first_head`](Self::first_head).
    #[inline(always)]
    pub fn words(&self, row: usize, head: usize, block: usize) -> [u32; 4] {
        let [position, sample, iteration] = self.row_words(row);
        let first = block as u32 | (self.first_head + head as u32) << BLOCK_BITS;
        philox4x32_10([first, position, sample, iteration], self.key)
    }

    /// Writes `kept` where an element of the row is kept, `fallen` where it falls, from the row's first column on.
    pub fn fill_row<T: Copy>(&self, elements: &mut [T], row: usize, head: usize, kept: T, fallen: T) {
        self.fill_columns(elements, [row, head, 0], kept, fallen);
    }

    /// As [`fill_row`](Self::fill_row) of a row and a head, from column `first` on: `[row, head, first]`.
    pub fn fill_columns<T: Copy>(&self, elements: &mut [T], [row, head, first]: [usize; 3], kept: T, fallen: T) {
        let threshold = self.threshold();
        let fill = |columns: &mut [T], words: &[u32]| {
            for (column, &word) in columns.iter_mut().zip(words) {
                *column = if word >= threshold { kept } else { fallen };
            }
        };
        // A first column inside a block of four takes the rest of its words.
        let (block, within) = (first / 4, first % 4);
        let head_length = ((4 - within) % 4).min(elements.len());
        let (start, rest) = elements.split_at_mut(head_length);
        if !start.is_empty() {
            fill(start, &self.words(row, head, block)[within..]);
        }
        for (index, columns) in rest.chunks_mut(4).enumerate() {
            fill(columns, &self.words(row, head, first.div_ceil(4) + index));
        }
    }

    /// Checks that this is the dropout of `rows` rows (or queries), with `heads` heads and `columns` columns (or keys).
    ///
    /// # Errors
    /// When the numbers of rows and places differ, the probability is outside `[0, 1)`, or there are more columns or
    /// heads than [`LIMITS`](Self::LIMITS).
    pub fn check(&self, operation: &'static str, rows: usize, heads: usize, columns: usize) -> Result<(), KernelError> {
        let (max_columns, max_heads) = Self::LIMITS;
        let (places, heads) = (self.places.len(), self.first_head as usize + heads);
        let check = Check(operation);
        check.value(
            "the number of the dropout's places",
            places as f64,
            places == rows,
            || format!("that of the rows, {rows}"),
        )?;
        let is_probability = (0.0..1.0).contains(&self.probability);
        check.value("the dropout probability", self.probability, is_probability, || {
            "in [0, 1)".to_owned()
        })?;
        check.value(
            "the columns under dropout",
            columns as f64,
            columns <= max_columns,
            || format!("at most {max_columns}"),
        )?;
        check.value("the heads under dropout", heads as f64, heads <= max_heads, || {
            format!("at most {max_heads}")
        })
    }

    /// The largest number of columns that a row may have, and of heads that a model may have.
    pub const LIMITS: (usize, usize) = (4 << BLOCK_BITS, 1 << (32 - BLOCK_BITS));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_from_any_first_one_are_those_of_the_row() {
        let place = RowPlace { position: 3, sample: 8 };
        let dropout = RowDropout {
            key: [1, 2],
            iteration: 5,
            first_head: 0,
            probability: 0.4,
            places: [place, place].into(),
        };
        let mut whole = [false; 23];
        dropout.fill_row(&mut whole, 1, 2, true, false);
        for first in 0..23 {
            for length in 0..23 - first {
                let mut part = vec![false; length];
                dropout.fill_columns(&mut part, [1, 2, first], true, false);
                assert_eq!(part, whole[first..first + length], "{length} columns from {first}");
            }
        }
    }
}
