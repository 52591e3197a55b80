//! `BucketLayout`: which bucket each parameter's gradient goes to, and where in it.
//!
//! Pure integers, the same on every rank of the data-parallel group. Called by the reducer.

/// The place of one parameter's gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketSlot {
    /// The number of the bucket.
    pub bucket: usize,
    /// The first element in the bucket.
    pub offset: usize,
    /// The number of elements.
    pub len: usize,
    /// The element, behind all gradients of the bucket, that says whether there is one: above zero where some
    /// data-parallel rank has received it.
    pub flag: usize,
}

/// The slots of all parameters, and the lengths of the buckets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketLayout {
    slots: Vec<BucketSlot>,
    lengths: Vec<usize>,
    /// The number of buckets that may be reduced during the backward pass: the ones behind them hold reused parameters.
    num_early: usize,
}

impl BucketLayout {
    /// Lays parameters of these lengths out in buckets of about `bucket_size` elements.
    ///
    /// The last parameter goes into the first bucket: gradients become complete from the output of a model to its
    /// input, and buckets are reduced in the order of their numbers. A bucket is closed by the parameter that fills
    /// it, which may reach beyond `bucket_size`; no parameter is cut. Parameters that `is_reused` says yes to, by their
    /// numbers, have buckets of their own behind all others: they are complete when the whole backward pass is.
    pub fn new(parameter_lengths: &[usize], bucket_size: usize, is_reused: impl Fn(usize) -> bool) -> Self {
        let empty = BucketSlot {
            bucket: 0,
            offset: 0,
            len: 0,
            flag: 0,
        };
        let mut slots = vec![empty; parameter_lengths.len()];
        let mut lengths: Vec<usize> = Vec::new();
        let mut num_early = 0;
        for reused in [false, true] {
            let mut is_open = false;
            for (number, &len) in parameter_lengths.iter().enumerate().rev() {
                if is_reused(number) != reused {
                    continue;
                }
                if !is_open {
                    lengths.push(0);
                }
                let bucket = lengths.len() - 1;
                slots[number] = BucketSlot {
                    bucket,
                    offset: lengths[bucket],
                    len,
                    flag: 0,
                };
                lengths[bucket] += len;
                is_open = lengths[bucket] < bucket_size;
            }
            if !reused {
                num_early = lengths.len();
            }
        }
        let mut flags = lengths.clone();
        for slot in slots.iter_mut().rev() {
            slot.flag = flags[slot.bucket];
            flags[slot.bucket] += 1;
        }
        Self {
            slots,
            lengths,
            num_early,
        }
    }

    /// The slot of each parameter, in the module's order.
    pub fn slots(&self) -> &[BucketSlot] {
        &self.slots
    }

    /// The number of buckets, the first ones, that may be reduced while the backward pass goes on.
    pub fn num_early(&self) -> usize {
        self.num_early
    }

    /// The number of gradient elements of each bucket.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// Returns the number of elements of each bucket, flags included.
    pub fn lengths_with_flags(&self) -> Vec<usize> {
        let flags = self.parameters_per_bucket();
        self.lengths.iter().zip(flags).map(|(len, flags)| len + flags).collect()
    }

    /// Returns how many parameters each bucket waits for.
    pub fn parameters_per_bucket(&self) -> Vec<usize> {
        let mut counts = vec![0; self.lengths.len()];
        for slot in &self.slots {
            counts[slot.bucket] += 1;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn slots_tile_the_buckets(
            lengths in proptest::collection::vec(0usize..50, 0..20), bucket_size in 1usize..100, tied in 0usize..6,
        ) {
            let layout = BucketLayout::new(&lengths, bucket_size, |number| number % 5 == tied);
            let mut covered: Vec<Vec<bool>> =
                layout.lengths_with_flags().iter().map(|&len| vec![false; len]).collect();
            for (slot, &len) in layout.slots().iter().zip(&lengths) {
                prop_assert_eq!(slot.len, len);
                for element in (slot.offset..slot.offset + len).chain([slot.flag]) {
                    prop_assert!(!covered[slot.bucket][element]);
                    covered[slot.bucket][element] = true;
                }
            }
            prop_assert!(covered.iter().flatten().all(|&c| c));
            for (number, slot) in layout.slots().iter().enumerate() {
                prop_assert_eq!(slot.bucket >= layout.num_early(), number % 5 == tied);
            }
            prop_assert_eq!(layout.parameters_per_bucket().iter().sum::<usize>(), lengths.len());
        }

        #[test]
        fn only_the_last_bucket_is_below_the_size(
            lengths in proptest::collection::vec(1usize..50, 1..20), bucket_size in 1usize..100,
        ) {
            let layout = BucketLayout::new(&lengths, bucket_size, |_| false);
            let (_, full) = layout.lengths().split_last().expect("one parameter at least");
            prop_assert!(full.iter().all(|&len| len >= bucket_size));
        }
    }

    #[test]
    fn the_output_end_comes_first() {
        let layout = BucketLayout::new(&[10, 20, 5], 20, |_| false);
        let buckets: Vec<usize> = layout.slots().iter().map(|slot| slot.bucket).collect();
        assert_eq!(buckets, [1, 0, 0]);
        assert_eq!(layout.lengths(), [25, 10]);
    }
}
