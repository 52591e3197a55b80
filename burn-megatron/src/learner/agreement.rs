//! Agreements of ranks: the settings of a run, who has how many samples of a batch, and whether to stop.

use std::ops::Range;

use burn::data::dataloader::Progress;
use burn::train::Interrupter;

use super::error::LearnerError;
use crate::context::ParallelContext;
use crate::data::mean_weight;
use crate::launch::StopFlag;
use crate::topology::Coordinates;

/// Knowledge of a batch that all ranks share.
#[derive(Clone, Debug)]
pub(super) struct Shares {
    /// The samples of each data-parallel rank.
    pub(super) samples: Vec<usize>,
    /// Samples of the epoch so far, and in all, over the data-parallel ranks.
    pub(super) progress: Progress,
    /// The first rank that was asked to stop, or that has failed.
    pub(super) asked_to_stop: Option<usize>,
    /// True if a rank has failed.
    pub(super) has_failed: bool,
}

impl Shares {
    /// Returns true if no rank has samples: the epoch is over.
    pub(super) fn is_end(&self) -> bool {
        self.samples.iter().all(|&samples| samples == 0)
    }

    /// Returns the factor of this rank's gradients.
    pub(super) fn weight(&self, data_rank: usize) -> f64 {
        mean_weight(&self.samples, data_rank)
    }

    /// The places of a rank's samples in the epoch's order, in which a batch's samples are in the order of the ranks.
    pub(super) fn places(&self, data_rank: usize) -> Range<u64> {
        let all: usize = self.samples.iter().sum();
        let before: usize = self.samples[..data_rank].iter().sum();
        // A loader that does not count its samples has a progress of 0.
        let first = self.progress.items_processed.saturating_sub(all) + before;
        first as u64..(first + self.samples[data_rank]) as u64
    }
}

/// The agreements of one run.
pub(super) struct Agreement {
    context: ParallelContext,
    pub(super) interrupter: Interrupter,
    stop_flag: Option<StopFlag>,
}

/// Numbers that one rank gives for a batch: its samples, its samples so far and in all, and if it was asked to stop.
const NUMBERS: usize = 4;

impl Agreement {
    pub(super) fn new(context: &ParallelContext, interrupter: Interrupter, stop_flag: Option<StopFlag>) -> Self {
        Self {
            context: context.clone(),
            interrupter,
            stop_flag,
        }
    }

    /// Agrees on a batch, of which this rank has loaded `samples` samples.
    ///
    /// # Communication
    /// One all-gather of 32 bytes over the world.
    pub(super) fn batch(&self, samples: usize, progress: &Progress) -> Result<Shares, LearnerError> {
        let is_asked = self.interrupter.should_stop() || self.stop_flag.as_ref().is_some_and(StopFlag::is_set);
        let has_failed = self.interrupter.error().is_some();
        let mine = [
            samples,
            progress.items_processed,
            progress.items_total,
            usize::from(is_asked) + 2 * usize::from(has_failed),
        ];
        let all = self.gather(mine.map(|number| number as i64))?;
        let grid = self.context.grid();
        let here = self.context.coordinates();
        let of_data_rank = |data: usize| all[grid.rank(Coordinates { data, ..here })];
        let data_ranks = 0..self.context.data_group().size();
        let sum = |number: usize| {
            data_ranks
                .clone()
                .map(|data| of_data_rank(data)[number] as usize)
                .sum::<usize>()
        };
        Ok(Shares {
            samples: data_ranks.clone().map(|data| of_data_rank(data)[0] as usize).collect(),
            progress: Progress::new(sum(1), sum(2), progress.unit.clone()),
            asked_to_stop: all.iter().position(|numbers| numbers[3] != 0),
            has_failed: all.iter().any(|numbers| numbers[3] >= 2),
        })
    }

    /// Interrupts the training on this rank too, if another was asked to stop or has failed.
    pub(super) fn interrupt(&self, shares: &Shares) {
        if let Some(rank) = shares.asked_to_stop
            && !self.interrupter.should_stop()
        {
            let reason = if shares.has_failed {
                "has failed"
            } else {
                "was asked to stop"
            };
            self.interrupter.stop(Some(&format!("rank {rank} {reason}")));
        }
    }

    /// Returns the numbers of samples of all data-parallel ranks, in training and in validation, given this rank's.
    ///
    /// # Communication
    /// One all-gather of 16 bytes over the data-parallel ranks.
    pub(super) fn totals(&self, samples: [usize; 2]) -> Result<[usize; 2], LearnerError> {
        let group = self.context.data_group();
        let mut all = vec![0_i64; 2 * group.size()];
        group.all_gather(&samples.map(|samples| samples as i64), &mut all)?;
        let (of_ranks, _) = all.as_chunks::<2>();
        Ok([0, 1].map(|split| of_ranks.iter().map(|rank| rank[split] as usize).sum()))
    }

    /// Checks that settings are the same on all ranks.
    ///
    /// # Communication
    /// One all-gather of 32 bytes over the world.
    pub(super) fn settings(&self, names: [&'static str; NUMBERS], values: [i64; NUMBERS]) -> Result<(), LearnerError> {
        let all = self.gather(values)?;
        for (number, setting) in names.into_iter().enumerate() {
            let mine = values[number];
            if let Some(other_rank) = all.iter().position(|other| other[number] != mine) {
                return Err(LearnerError::SettingsDiffer {
                    setting,
                    mine,
                    rank: self.context.rank(),
                    other: all[other_rank][number],
                    other_rank,
                });
            }
        }
        Ok(())
    }

    /// Returns what the first rank of the world says.
    ///
    /// # Communication
    /// One broadcast of 4 bytes over the world.
    pub(super) fn as_the_first_rank(&self, answer: bool) -> Result<bool, LearnerError> {
        let mut answer = [i32::from(answer)];
        self.context.world_group().broadcast(&mut answer, 0)?;
        Ok(answer[0] != 0)
    }

    /// The numbers of every rank of the world.
    fn gather(&self, mine: [i64; NUMBERS]) -> Result<Vec<[i64; NUMBERS]>, LearnerError> {
        let world = self.context.world_group();
        let mut all = vec![0_i64; NUMBERS * world.size()];
        world.all_gather(&mine, &mut all)?;
        let (numbers, _) = all.as_chunks::<NUMBERS>();
        Ok(numbers.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_one_rank() {
        // The third batch of an epoch, after two of eight samples.
        let shares = Shares {
            samples: vec![1, 1, 1, 0],
            progress: Progress::new(19, 19, None),
            asked_to_stop: None,
            has_failed: false,
        };
        let places: Vec<Range<u64>> = (0..4).map(|rank| shares.places(rank)).collect();
        assert_eq!(places, [16..17, 17..18, 18..19, 19..19]);
    }
}
