//! `BucketLayout`: which bucket each parameter's gradient goes to, where in it, and which shard of the bucket that is.
//!
//! Pure integers, the same on every rank of the data-parallel group.

use std::ops::Range;

/// Shards, and the parameters in them, begin at multiples of this many elements, so that each is aligned for any
/// device: 512 bytes in f32.
const ALIGNMENT: usize = 128;

/// The place of one parameter's gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketSlot {
    /// The number of the bucket.
    pub bucket: usize,
    /// The first element in the bucket.
    pub offset: usize,
    /// The number of elements.
    pub len: usize,
}

impl BucketSlot {
    /// Returns its range in the bucket.
    pub(in crate::data_parallel) fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.len
    }
}

/// Which parameters may share a bucket, in the order of the buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketClass {
    /// Used once in a pass: the bucket may be reduced during the backward pass.
    Early,
    /// Used by several segments of a stage: complete when the whole backward pass is.
    Reused,
    /// Held by the first and by the last pipeline stage, whose buckets of this class are alike, shard by shard.
    Tied,
}

/// The slots of all parameters, and the lengths of the buckets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketLayout {
    slots: Vec<BucketSlot>,
    lengths: Vec<usize>,
    /// The number of buckets that may be reduced during the backward pass.
    num_early: usize,
    num_shards: usize,
}

impl BucketLayout {
    /// Lays parameters of these lengths out in buckets of about `bucket_size` elements, each of `num_shards` shards.
    ///
    /// The last parameter goes into the first bucket: gradients become complete from the output of a model to its
    /// input, and buckets are reduced in the order of their numbers. A bucket is closed by the parameter that fills it,
    /// which may reach beyond `bucket_size`; no parameter is in two buckets. `class` returns the class of buckets that
    /// a parameter may be in, by its number.
    pub fn new(
        parameter_lengths: &[usize],
        bucket_size: usize,
        num_shards: usize,
        class: impl Fn(usize) -> BucketClass,
    ) -> Self {
        Self::of_units(parameter_lengths, bucket_size, num_shards, class, |_| 0)
    }

    /// As [`new`](Self::new), with parameters of different units in different buckets: `unit` returns that of a
    /// parameter, by its number.
    pub fn of_units(
        parameter_lengths: &[usize],
        bucket_size: usize,
        num_shards: usize,
        class: impl Fn(usize) -> BucketClass,
        unit: impl Fn(usize) -> usize,
    ) -> Self {
        let empty = BucketSlot {
            bucket: 0,
            offset: 0,
            len: 0,
        };
        let mut slots = vec![empty; parameter_lengths.len()];
        let mut lengths: Vec<usize> = Vec::new();
        let mut num_early = 0;
        for of_class in [BucketClass::Early, BucketClass::Reused, BucketClass::Tied] {
            let mut open = None;
            for (number, &len) in parameter_lengths.iter().enumerate().rev() {
                if class(number) != of_class {
                    continue;
                }
                if open != Some(unit(number)) {
                    lengths.push(0);
                }
                let bucket = lengths.len() - 1;
                let offset = match len {
                    0 => lengths[bucket],
                    _ => lengths[bucket].next_multiple_of(ALIGNMENT),
                };
                slots[number] = BucketSlot { bucket, offset, len };
                lengths[bucket] = offset + len;
                open = Some(unit(number)).filter(|_| lengths[bucket] < bucket_size);
            }
            if of_class == BucketClass::Early {
                num_early = lengths.len();
            }
        }
        Self {
            slots,
            lengths,
            num_early,
            num_shards: num_shards.max(1),
        }
    }

    /// The slot of each parameter, in the module's order.
    pub fn slots(&self) -> &[BucketSlot] {
        &self.slots
    }

    /// Returns the number of buckets, from the first, that may be reduced during the backward pass.
    pub fn num_early(&self) -> usize {
        self.num_early
    }

    /// The number of elements of each bucket up to the end of its last gradient.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// The shards of a bucket, one for each data-parallel rank.
    pub fn num_shards(&self) -> usize {
        self.num_shards
    }

    /// Returns the number of elements of each shard of a bucket. The last shards may hold fewer gradients, or none.
    pub fn shard_length(&self, bucket: usize) -> usize {
        self.lengths[bucket]
            .div_ceil(self.num_shards)
            .next_multiple_of(ALIGNMENT)
    }

    /// Returns the number of elements of a bucket: that of its shards together.
    pub fn padded_length(&self, bucket: usize) -> usize {
        self.shard_length(bucket) * self.num_shards
    }

    /// Returns which elements of parameter `number` are in shard `shard` of its bucket, counted from the parameter's
    /// first.
    pub fn piece(&self, number: usize, shard: usize) -> Range<usize> {
        let BucketSlot { bucket, offset, len } = self.slots[number];
        let shard_length = self.shard_length(bucket);
        let within = |element: usize| element.clamp(offset, offset + len) - offset;
        within(shard * shard_length)..within((shard + 1) * shard_length)
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

    const CLASSES: [BucketClass; 3] = [BucketClass::Early, BucketClass::Reused, BucketClass::Tied];

    proptest! {
        #[test]
        fn slots_lie_apart_and_aligned_in_their_buckets(
            lengths in proptest::collection::vec(0usize..400, 0..20), bucket_size in 1usize..1000, tied in 0usize..6,
        ) {
            let class = |number: usize| if number % 5 == tied { CLASSES[1 + number % 2] } else { CLASSES[0] };
            let layout = BucketLayout::new(&lengths, bucket_size, 3, class);
            let mut covered: Vec<Vec<bool>> = layout.lengths().iter().map(|&len| vec![false; len]).collect();
            for (slot, &len) in layout.slots().iter().zip(&lengths) {
                prop_assert_eq!(slot.len, len);
                prop_assert!(len == 0 || slot.offset % ALIGNMENT == 0);
                for is_covered in &mut covered[slot.bucket][slot.offset..slot.offset + len] {
                    prop_assert!(!*is_covered);
                    *is_covered = true;
                }
            }
            for bucket in &covered {
                // Gaps come from alignment, and none is at the end.
                prop_assert!(bucket.chunks(ALIGNMENT).all(|chunk| chunk.contains(&true)));
                prop_assert!(bucket.last().is_none_or(|&is_covered| is_covered));
            }
            for (number, slot) in layout.slots().iter().enumerate() {
                prop_assert_eq!(slot.bucket >= layout.num_early(), class(number) != BucketClass::Early);
                for (other, other_slot) in layout.slots().iter().enumerate() {
                    prop_assert!(slot.bucket != other_slot.bucket || class(number) == class(other));
                }
            }
            prop_assert_eq!(layout.parameters_per_bucket().iter().sum::<usize>(), lengths.len());
        }

        #[test]
        fn pieces_cover_each_parameter_once_and_lie_in_their_shard(
            lengths in proptest::collection::vec(0usize..2000, 1..8), bucket_size in 1usize..4000, shards in 1usize..6,
        ) {
            let layout = BucketLayout::new(&lengths, bucket_size, shards, |_| BucketClass::Early);
            for (number, &len) in lengths.iter().enumerate() {
                let slot = layout.slots()[number];
                let mut next = 0;
                for shard in 0..shards {
                    let piece = layout.piece(number, shard);
                    if piece.is_empty() {
                        continue;
                    }
                    prop_assert_eq!(piece.start, next);
                    next = piece.end;
                    let shard_length = layout.shard_length(slot.bucket);
                    let in_bucket = slot.offset + piece.start..slot.offset + piece.end;
                    prop_assert!(in_bucket.start >= shard * shard_length);
                    prop_assert!(in_bucket.end <= (shard + 1) * shard_length);
                }
                prop_assert_eq!(next, len);
            }
            for bucket in 0..layout.lengths().len() {
                prop_assert!(layout.padded_length(bucket) >= layout.lengths()[bucket]);
            }
        }

        #[test]
        fn only_the_last_bucket_is_below_the_size(
            lengths in proptest::collection::vec(1usize..50, 1..20), bucket_size in 1usize..100,
        ) {
            let layout = BucketLayout::new(&lengths, bucket_size, 1, |_| BucketClass::Early);
            let (_, full) = layout.lengths().split_last().expect("one parameter at least");
            prop_assert!(full.iter().all(|&len| len >= bucket_size));
        }
    }

    #[test]
    fn the_output_end_comes_first() {
        let layout = BucketLayout::new(&[10, 20, 5], ALIGNMENT, 1, |_| BucketClass::Early);
        let buckets: Vec<usize> = layout.slots().iter().map(|slot| slot.bucket).collect();
        assert_eq!(buckets, [1, 0, 0]);
        assert_eq!(layout.lengths(), [ALIGNMENT + 20, 10]);
    }
}
