//! The Mersenne Twister as numpy's legacy `RandomState` seeds and uses it.

use rand_mt::Mt;

/// Draws of a shuffle that are made ahead: what they point at, a cache line each, stays in the second-level cache.
const BLOCK: usize = 256;

/// The 32-bit Mersenne Twister, period 2^19937 − 1.
///
/// # Reference
/// Matsumoto and Nishimura 1998, "Mersenne Twister: a 623-dimensionally equidistributed uniform
/// pseudo-random number generator". Seeding by 1812433253 is their 2002 version.
#[derive(Debug, Clone)]
pub struct Mt19937(Mt);

impl Mt19937 {
    /// Returns the generator of numpy's `RandomState(seed)`.
    pub fn new(seed: u32) -> Self {
        Self(Mt::new(seed))
    }

    /// Returns the next 32 random bits.
    pub fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// Shuffles `values` as `RandomState.shuffle` does.
    ///
    /// From the last element down to the second, swaps element `i` with one of `0..=i`, drawn by
    /// masking 32 bits to the smallest `2^k − 1 ≥ i` and rejecting what is above `i`.
    ///
    /// In a large array nearly every swap waits for memory. The draws do not depend on the values, so a block of them
    /// is made first and what they point at is fetched, all at once, while the block before is swapped, in order.
    ///
    /// # Panics
    /// If there are more than 2^32 values.
    pub fn shuffle<T: Copy>(&mut self, values: &mut [T]) {
        let Some(last) = values.len().checked_sub(1) else {
            return;
        };
        let mut upper = u32::try_from(last).expect("at most 2^32 values are shuffled");
        let mut blocks = [[0; BLOCK], [0; BLOCK]];
        // The block whose values are being fetched: its draws, and the element that the first of them is for.
        let mut fetched = (0, 0);
        for turn in 0.. {
            let [even, odd] = &mut blocks;
            let (ahead, current) = if turn % 2 == 0 { (even, odd) } else { (odd, even) };
            let drawn = self.draw_block(upper, ahead);
            for &draw in &ahead[..drawn] {
                prefetch(&values[draw as usize]);
            }
            let (start, count) = fetched;
            for (i, &draw) in (0..=start).rev().zip(&current[..count]) {
                values.swap(i, draw as usize);
            }
            if drawn == 0 {
                return;
            }
            fetched = (upper as usize, drawn);
            upper -= drawn as u32;
        }
    }

    /// Draws for elements `upper`, `upper − 1` and so on, those that fit and have the same mask; returns how many.
    fn draw_block(&mut self, upper: u32, draws: &mut [u32; BLOCK]) -> usize {
        if upper == 0 {
            return 0;
        }
        let mask = u32::MAX >> upper.leading_zeros();
        let wanted = BLOCK.min((upper - (mask >> 1)) as usize);
        let mut count = 0;
        while count < wanted {
            let value = self.next_u32() & mask;
            draws[count] = value;
            // Without a branch: whether a draw is rejected cannot be predicted.
            count += usize::from(value <= upper - count as u32);
        }
        count
    }
}

/// Asks the processor to fetch what will be read soon.
#[cfg(target_arch = "x86_64")]
fn prefetch<T: Copy>(value: &T) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a hint, which reads nothing; the pointer is that of a reference.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast()) };
}

/// Reads what will be needed soon: the processor does not wait for a value that nothing depends on.
#[cfg(not(target_arch = "x86_64"))]
fn prefetch<T: Copy>(value: &T) {
    std::hint::black_box(*value);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `RandomState(seed).shuffle(arange(n))` for one n after the other.
    fn shuffled(seed: u32, lengths: &[u64]) -> Vec<Vec<u64>> {
        let mut generator = Mt19937::new(seed);
        let shuffle = |&length: &u64| {
            let mut values: Vec<u64> = (0..length).collect();
            generator.shuffle(&mut values);
            values
        };
        lengths.iter().map(shuffle).collect()
    }

    fn weighted_sum(values: &[u64]) -> u64 {
        (1..).zip(values).map(|(i, value): (u64, _)| i * value).sum()
    }

    #[test]
    fn raw_numbers_match_the_reference() {
        let mut generator = Mt19937::new(5489);
        let numbers: Vec<u32> = (0..10_000).map(|_| generator.next_u32()).collect();
        assert_eq!(numbers[..3], [3499211612, 581869302, 3890346734]);
        // The C++ standard asks for this 10000th number of a default `std::mt19937`.
        assert_eq!(numbers[9999], 4123659995);
    }

    #[test]
    fn seeds_cover_32_bits_as_numpy_does() {
        for (seed, first) in [(0, 2357136044), (1234, 822569775), (u32::MAX, 419326371)] {
            assert_eq!(Mt19937::new(seed).next_u32(), first);
        }
    }

    #[test]
    fn short_shuffles_match_numpy() {
        assert_eq!(shuffled(1234, &[10]), [[7, 2, 9, 1, 0, 8, 4, 5, 6, 3]]);
        assert_eq!(
            shuffled(7, &[16]),
            [[8, 5, 10, 2, 12, 0, 1, 14, 13, 7, 11, 3, 6, 9, 4, 15]]
        );
        assert_eq!(
            shuffled(u32::MAX, &[17]),
            [[8, 1, 5, 14, 10, 15, 16, 13, 11, 9, 6, 0, 4, 7, 12, 2, 3]]
        );
    }

    #[test]
    fn long_shuffles_from_one_generator_match_numpy() {
        // Sums over i of (i + 1) · value, made with numpy 2.4.6.
        for (seed, length, sums) in [
            (1234, 100_003, [249888847570818, 31242051991009]),
            (42, 65_536, [70271691939890, 8797855284331]),
        ] {
            let arrays = shuffled(seed, &[length, length / 2]);
            assert_eq!(arrays.iter().map(|a| weighted_sum(a)).collect::<Vec<_>>(), sums);
        }
    }

    #[test]
    fn nothing_and_one_value_shuffle_without_a_draw() {
        let mut generator = Mt19937::new(3);
        generator.shuffle::<u8>(&mut []);
        generator.shuffle(&mut [1]);
        assert_eq!(generator.next_u32(), Mt19937::new(3).next_u32());
    }
}
