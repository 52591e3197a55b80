//! `GlobalBatches`: which samples of each global batch are whose. Integers only.

use std::ops::Range;

use super::error::DataError;

/// What happens to the samples that remain when no full global batch does, and whether shares of a batch may differ.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum LastBatch {
    /// They are one more batch. All ranks have equally many samples of each batch: a size that the ranks do not divide
    /// is refused.
    #[default]
    Share,
    /// They are one more batch. Shares of a batch may differ by one sample, and ranks for which none remains have one
    /// batch less.
    ///
    /// The mean over ranks of their mean losses is then not the mean over samples. `ParallelLearner` (feature
    /// `learner`) weights the ranks; a loop of your own gives [`GlobalBatches::weight`] to
    /// [`pass`](crate::data_parallel::DistributedDataParallel::pass), or multiplies each rank's loss by it, and makes
    /// [`num_batches`](GlobalBatches::num_batches) steps on every rank: one without samples takes part by
    /// [`pass_without_samples`](crate::data_parallel::DistributedDataParallel::pass_without_samples), or gives no
    /// gradients to [`average_gradients`](crate::data_parallel::average_gradients).
    Uneven,
    /// They are not used. All ranks have equally many samples of each batch.
    Drop,
}

/// The global batches of an epoch, and each rank's share of each.
///
/// Global batch k holds the samples at the places `k * batch_size .. (k + 1) * batch_size` of the epoch's order,
/// whatever the number of ranks. Each rank has a contiguous share of it, in the order of the ranks; where the ranks do
/// not divide a batch, the first ones have one sample more.
///
/// A rank's loss is the mean over its own share. The mean over the global batch is the mean over ranks of each loss
/// times its [`weight`](Self::weight), which is 1 where all shares are equal: always, except with
/// [`LastBatch::Uneven`].
///
/// # Examples
/// ```
/// use burn_megatron::data::{GlobalBatches, LastBatch};
///
/// let batches = GlobalBatches::new(11, 4, 2, LastBatch::Uneven)?;
/// assert_eq!(batches.num_batches(), 3);
/// assert_eq!([batches.share(0, 0), batches.share(0, 1)], [0..2, 2..4]);
/// assert_eq!([batches.share(2, 0), batches.share(2, 1)], [8..10, 10..11]);
/// assert_eq!(batches.weight(2, 0), 4.0 / 3.0);
/// # Ok::<(), burn_megatron::data::DataError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GlobalBatches {
    num_samples: usize,
    batch_size: usize,
    ranks: usize,
}

/// The way out where shares differ.
const OR_UNEVEN: &str = "LastBatch::Uneven, which is for ParallelLearner and for loops that multiply each rank's loss \
                         by GlobalBatches::weight";

impl GlobalBatches {
    /// Returns the batches of `num_samples` samples, `batch_size` in each over all ranks together.
    ///
    /// # Errors
    /// When there are no ranks, or the batch size is below their number. When shares of a batch would differ, except
    /// with [`LastBatch::Uneven`]. When there are fewer samples than one batch has, with [`LastBatch::Drop`].
    pub fn new(num_samples: usize, batch_size: usize, ranks: usize, last: LastBatch) -> Result<Self, DataError> {
        if ranks == 0 {
            return Err(DataError::configuration("data-parallel size", "at least 1", ranks));
        }
        if batch_size < ranks {
            let rule = format!("at least the data-parallel size {ranks}: it counts the samples of all ranks");
            return Err(DataError::configuration("batch size", rule, batch_size));
        }
        if last != LastBatch::Uneven && !batch_size.is_multiple_of(ranks) {
            let below = batch_size - batch_size % ranks;
            let rule = format!(
                "a multiple of the data-parallel size {ranks}, such as {below} or {}; choose one, or {OR_UNEVEN}",
                below + ranks
            );
            return Err(DataError::configuration("batch size", rule, batch_size));
        }
        let rest = num_samples % batch_size;
        if last == LastBatch::Share && !rest.is_multiple_of(ranks) {
            let rule = format!(
                "a multiple of the data-parallel size {ranks} (of {num_samples} samples in batches of {batch_size}); \
                 choose another batch size, LastBatch::Drop to leave them out, or {OR_UNEVEN}"
            );
            return Err(DataError::configuration("samples of the last batch", rule, rest));
        }
        if last == LastBatch::Drop && num_samples < batch_size {
            let rule = format!("at least the {batch_size} of one batch, as LastBatch::Drop leaves out what remains");
            return Err(DataError::configuration("number of samples", rule, num_samples));
        }
        Ok(Self {
            num_samples: match last {
                LastBatch::Drop => num_samples - rest,
                LastBatch::Share | LastBatch::Uneven => num_samples,
            },
            batch_size,
            ranks,
        })
    }

    /// Returns the number of samples of an epoch, over all ranks.
    pub fn num_samples(&self) -> usize {
        self.num_samples
    }

    /// Returns the number of global batches of an epoch.
    pub fn num_batches(&self) -> usize {
        self.num_samples.div_ceil(self.batch_size)
    }

    /// Returns the samples of a full global batch.
    pub fn batch_size(&self) -> usize {
        self.batch_size
    }

    /// Returns the places of a global batch in the epoch's order; an empty range after the last one.
    pub fn batch(&self, batch: usize) -> Range<usize> {
        let start = batch.saturating_mul(self.batch_size).min(self.num_samples);
        start..start.saturating_add(self.batch_size).min(self.num_samples)
    }

    /// Returns the places of a rank's share of a global batch.
    pub fn share(&self, batch: usize, rank: usize) -> Range<usize> {
        let Range { start, end } = self.batch(batch);
        let (each, more) = ((end - start) / self.ranks, (end - start) % self.ranks);
        let first = start + rank * each + rank.min(more);
        first..first + each + usize::from(rank < more)
    }

    /// Returns what a rank's mean loss over its share of a batch is multiplied by, so that the mean over ranks is the
    /// mean over the batch: `share * ranks / batch`.
    pub fn weight(&self, batch: usize, rank: usize) -> f64 {
        let shares: Vec<usize> = (0..self.ranks).map(|rank| self.share(batch, rank).len()).collect();
        mean_weight(&shares, rank)
    }

    /// Returns the number of samples of a rank in an epoch.
    pub fn num_samples_of(&self, rank: usize) -> usize {
        // All full batches are shared out alike.
        let full = self.num_samples / self.batch_size;
        full * self.share(0, rank).len() * usize::from(full > 0) + self.share(full, rank).len()
    }
}

/// Returns the factor of a rank's mean that makes the mean over ranks the mean over all samples; exactly 1 if every
/// rank has the same number of samples.
pub(crate) fn mean_weight(shares: &[usize], rank: usize) -> f64 {
    if shares.iter().all(|share| *share == shares[0]) {
        return 1.0;
    }
    let total: usize = shares.iter().sum();
    shares[rank] as f64 * shares.len() as f64 / total as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LAST: [LastBatch; 3] = [LastBatch::Share, LastBatch::Uneven, LastBatch::Drop];

    fn batches() -> impl Strategy<Value = (GlobalBatches, usize)> {
        (0usize..200, 1usize..20, 1usize..9, 0usize..3)
            .prop_filter_map("sizes that are refused", |(samples, size, ranks, last)| {
                Some((GlobalBatches::new(samples, size, ranks, LAST[last]).ok()?, ranks))
            })
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused_by_number() {
        let message = |samples, size, last| GlobalBatches::new(samples, size, 4, last).unwrap_err().to_string();
        assert_eq!(
            message(10, 3, LastBatch::Share),
            "batch size must be at least the data-parallel size 4: it counts the samples of all ranks, got 3"
        );
        for last in [LastBatch::Share, LastBatch::Drop] {
            assert_eq!(
                message(20, 10, last),
                "batch size must be a multiple of the data-parallel size 4, such as 8 or 12; choose one, or \
                 LastBatch::Uneven, which is for ParallelLearner and for loops that multiply each rank's loss by \
                 GlobalBatches::weight, got 10"
            );
        }
        // With 11 samples a rank would have none of the last batch, with 13 one would have more than the others.
        for (samples, rest) in [(11, 3), (13, 5)] {
            let message = message(samples, 8, LastBatch::Share);
            let start = format!(
                "samples of the last batch must be a multiple of the data-parallel size 4 (of {samples} samples in \
                 batches of 8); choose another batch size, LastBatch::Drop to leave them out, or LastBatch::Uneven"
            );
            assert!(
                message.starts_with(&start) && message.ends_with(&format!(", got {rest}")),
                "{message}"
            );
        }
        let uneven = GlobalBatches::new(11, 8, 4, LastBatch::Uneven).unwrap();
        let shares: Vec<usize> = (0..4).map(|rank| uneven.share(1, rank).len()).collect();
        assert_eq!(shares, [1, 1, 1, 0]);
        let dropped = GlobalBatches::new(11, 8, 4, LastBatch::Drop).unwrap();
        assert_eq!((dropped.num_batches(), dropped.num_samples()), (1, 8));
    }

    #[test]
    fn an_epoch_without_batches_and_a_world_without_ranks_are_refused() {
        let message = |ranks, last| GlobalBatches::new(7, 8, ranks, last).unwrap_err().to_string();
        assert_eq!(
            message(4, LastBatch::Drop),
            "number of samples must be at least the 8 of one batch, as LastBatch::Drop leaves out what remains, got 7"
        );
        for last in LAST {
            assert_eq!(message(0, last), "data-parallel size must be at least 1, got 0");
        }
    }

    #[test]
    fn shares_of_a_batch_are_equal_unless_asked_for() {
        for (ranks, batch_size) in (1..5).flat_map(|ranks| (1..9).map(move |size| (ranks, size))) {
            for last in [LastBatch::Share, LastBatch::Drop] {
                let Ok(batches) = GlobalBatches::new(3 * batch_size + 4, batch_size, ranks, last) else {
                    continue;
                };
                for batch in 0..batches.num_batches() {
                    let weights: Vec<f64> = (0..ranks).map(|rank| batches.weight(batch, rank)).collect();
                    assert_eq!(weights, vec![1.0; ranks], "batch {batch} of {batches:?}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn shares_joined_in_rank_order_are_the_batches_of_one_rank((batches, ranks) in batches()) {
            let one = GlobalBatches { ranks: 1, ..batches };
            let mut all = Vec::new();
            for batch in 0..batches.num_batches() {
                let joined: Vec<usize> = (0..ranks).flat_map(|rank| batches.share(batch, rank)).collect();
                prop_assert_eq!(&joined, &one.share(batch, 0).collect::<Vec<_>>());
                all.extend(joined);
            }
            prop_assert_eq!(all, (0..batches.num_samples()).collect::<Vec<_>>());
            prop_assert!(batches.batch(batches.num_batches()).is_empty());
        }

        #[test]
        fn shares_differ_by_one_sample_at_most_and_the_first_rank_always_has_one((batches, ranks) in batches()) {
            for batch in 0..batches.num_batches() {
                let shares: Vec<usize> = (0..ranks).map(|rank| batches.share(batch, rank).len()).collect();
                prop_assert!(shares.is_sorted_by(|a, b| a >= b) && shares[0] - shares[ranks - 1] <= 1);
                prop_assert!(shares[0] > 0);
            }
        }

        #[test]
        fn weighted_means_over_ranks_are_the_mean_over_samples((batches, ranks) in batches()) {
            for batch in 0..batches.num_batches() {
                let value = |place: usize| (place * place) as f64 - 3.0;
                let mean = |places: std::ops::Range<usize>| {
                    let len = places.len();
                    if len == 0 { 0.0 } else { places.map(value).sum::<f64>() / len as f64 }
                };
                let weighted: f64 = (0..ranks)
                    .map(|rank| batches.weight(batch, rank) * mean(batches.share(batch, rank)))
                    .sum();
                let expected = mean(batches.batch(batch));
                prop_assert!((weighted / ranks as f64 - expected).abs() <= 1e-9 * expected.abs().max(1.0));
            }
        }

        #[test]
        fn a_rank_counts_the_samples_that_it_gets((batches, ranks) in batches()) {
            for rank in 0..ranks {
                let counted: usize = (0..batches.num_batches()).map(|batch| batches.share(batch, rank).len()).sum();
                prop_assert_eq!(batches.num_samples_of(rank), counted);
            }
        }
    }
}
