//! The factors of a row under dropout, with vector instructions.

use super::math::Real;
use crate::random::philox::philox4x32_10;
use crate::random::{BLOCK_BITS, RowDropout};

/// Writes the factor of each element of a row: the dropout's scale, or 0 where it falls.
///
/// The same as [`RowDropout::fill_row`]; to be called inside [`vectorised`](super::math::vectorised).
#[inline(always)]
pub(crate) fn factors<R: Real>(dropout: &RowDropout, row: usize, head: usize, factors: &mut [R]) {
    let [position, sample, iteration] = dropout.row_words(row);
    let (key, threshold, kept) = (dropout.key, dropout.threshold(), R::of(dropout.scale()));
    let head = (dropout.first_head + head as u32) << BLOCK_BITS;
    let (blocks, rest) = factors.as_chunks_mut::<4>();
    let blocks_count = blocks.len();
    for (block, factors) in blocks.iter_mut().enumerate() {
        let words = philox4x32_10([block as u32 | head, position, sample, iteration], key);
        for column in 0..4 {
            factors[column] = if words[column] >= threshold { kept } else { R::ZERO };
        }
    }
    let words = philox4x32_10([blocks_count as u32 | head, position, sample, iteration], key);
    for (factor, word) in rest.iter_mut().zip(words) {
        *factor = if word >= threshold { kept } else { R::ZERO };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flex::math::vectorised;
    use crate::random::RowPlace;

    #[test]
    fn the_same_elements_fall_as_on_the_host() {
        let places = [
            RowPlace { position: 3, sample: 9 },
            RowPlace {
                position: u32::MAX,
                sample: 1,
            },
        ];
        let dropout = RowDropout {
            key: [5, 6],
            iteration: 77,
            first_head: 2,
            probability: 0.3,
            places: places.into(),
        };
        for (row, head, columns) in [(0, 0, 1000), (1, 3, 67), (1, 0, 4), (0, 1, 3), (0, 0, 0)] {
            let (mut expected, mut actual) = (vec![9.0f32; columns], vec![9.0f32; columns]);
            dropout.fill_row(&mut expected, row, head, dropout.scale() as f32, 0.0);
            vectorised(
                #[inline(always)]
                || factors(&dropout, row, head, &mut actual),
            );
            assert_eq!(actual, expected);
        }
    }
}
