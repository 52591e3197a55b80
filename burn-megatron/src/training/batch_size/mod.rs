//! Global batch size over the course of training.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Batch sizes are below this: so are the samples of a run, which dropout numbers in 32 bits.
const LIMIT: usize = 1 << 32;

/// Smaller batches at the beginning of training.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchSizeRampUp {
    /// Samples of the first batches.
    pub start: usize,
    /// What is added at a time.
    pub increment: usize,
    /// Samples of training over which the full size is reached.
    pub samples: u64,
}

/// A configuration that is no schedule.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum BatchSizeError {
    #[error("{name} must be at least 1 and below 2^32, got {value}")]
    OutOfRange { name: &'static str, value: u64 },
    #[error("a batch-size ramp-up must start below the global batch size {global}, got {start}")]
    Start { start: usize, global: usize },
    #[error(
        "a batch-size ramp-up must reach the global batch size in whole increments: {global} - {start} = {difference} \
         is no multiple of {increment}; the nearest valid increments are {nearest}",
        difference = .global - .start
    )]
    Increment {
        start: usize,
        increment: usize,
        global: usize,
        nearest: String,
    },
}

/// Gives the global batch size for every number of consumed samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSizeSchedule {
    ramp_up: Option<BatchSizeRampUp>,
    global_batch_size: usize,
}

/// Steps of one batch size, one after the other.
#[derive(Debug, Clone, Copy)]
struct BatchSizePhase {
    /// Samples consumed before the first of them.
    consumed_samples: u64,
    batch_size: u64,
    /// As good as endless for the last phase.
    num_steps: u64,
}

impl BatchSizeSchedule {
    /// Returns the schedule that ends at `global_batch_size`; without a ramp-up, it begins there as well.
    ///
    /// # Errors
    /// A number is zero or too large, or the ramp-up does not go up to the full size in whole increments.
    pub fn new(global_batch_size: usize, ramp_up: Option<BatchSizeRampUp>) -> Result<Self, BatchSizeError> {
        let in_range = |name, value: u64| {
            if (1..LIMIT as u64).contains(&value) {
                Ok(())
            } else {
                Err(BatchSizeError::OutOfRange { name, value })
            }
        };
        in_range("the global batch size", global_batch_size as u64)?;
        if let Some(BatchSizeRampUp {
            start,
            increment,
            samples,
        }) = ramp_up
        {
            in_range("the start of a batch-size ramp-up", start as u64)?;
            in_range("the increment of a batch-size ramp-up", increment as u64)?;
            in_range("the samples of a batch-size ramp-up", samples)?;
            if start >= global_batch_size {
                let global = global_batch_size;
                return Err(BatchSizeError::Start { start, global });
            }
            let difference = global_batch_size - start;
            if !difference.is_multiple_of(increment) {
                return Err(BatchSizeError::Increment {
                    start,
                    increment,
                    global: global_batch_size,
                    nearest: nearest_divisors(increment, difference),
                });
            }
        }
        Ok(Self {
            ramp_up,
            global_batch_size,
        })
    }

    /// Returns the samples of the step that begins after `consumed_samples` samples, of all ranks together.
    ///
    /// With n samples, a ramp-up from s by i over S samples, and k increments up to the full size:
    /// `s + i·min(k, ⌊n·k/S⌋)`.
    ///
    /// `consumed_samples` are those that training has seen, those of skipped steps as well.
    ///
    /// # Reference
    /// Megatron-LM's `RampupBatchsizeNumMicroBatchesCalculator`.
    pub fn global_batch_size(&self, consumed_samples: u64) -> usize {
        match self.ramp_up {
            None => self.global_batch_size,
            Some(ramp_up) => ramp_up.start + self.increments_at(&ramp_up, consumed_samples) * ramp_up.increment,
        }
    }

    /// Returns every batch size from the first to the full one.
    pub fn sizes(&self) -> impl Iterator<Item = usize> {
        let full = self.global_batch_size;
        let (start, increment) = match self.ramp_up {
            None => (full, 1),
            Some(ramp_up) => (ramp_up.start, ramp_up.increment),
        };
        (start..=full).step_by(increment)
    }

    /// Returns the steps that a run of `train_samples` samples takes. A last batch that is not full is left out.
    pub fn num_steps(&self, train_samples: u64) -> u64 {
        self.num_steps_from(0, train_samples)
    }

    /// Returns the number of steps that are left of a run of `train_samples` samples after the first
    /// `consumed_samples`, whatever the sizes of the batches that consumed those.
    pub fn num_steps_from(&self, consumed_samples: u64, train_samples: u64) -> u64 {
        let mut steps = 0;
        for phase in self.stretches_from(consumed_samples) {
            let fit = train_samples.saturating_sub(phase.consumed_samples) / phase.batch_size;
            // What is left after them is less than one batch, and later batches are larger.
            if fit <= phase.num_steps {
                return steps + fit;
            }
            steps += phase.num_steps;
        }
        steps
    }

    /// Returns the samples that the first `num_steps` steps of a run consume, or the largest number if they are more.
    pub fn samples_of_steps(&self, num_steps: u64) -> u64 {
        let mut left = num_steps;
        for phase in self.stretches_from(0) {
            if left <= phase.num_steps {
                let samples = left.saturating_mul(phase.batch_size);
                return phase.consumed_samples.saturating_add(samples);
            }
            left -= phase.num_steps;
        }
        u64::MAX
    }

    /// How often a ramp-up has added its increment.
    fn increments_at(&self, ramp_up: &BatchSizeRampUp, consumed_samples: u64) -> usize {
        let most = self.num_increments(ramp_up);
        if consumed_samples >= ramp_up.samples {
            return most;
        }
        // Both factors are below 2^32.
        (consumed_samples * most as u64 / ramp_up.samples) as usize
    }

    fn num_increments(&self, ramp_up: &BatchSizeRampUp) -> usize {
        (self.global_batch_size - ramp_up.start) / ramp_up.increment
    }

    /// Returns all steps after `consumed_samples`, by batch size; a size that no step has is left out.
    fn stretches_from(&self, consumed_samples: u64) -> impl Iterator<Item = BatchSizePhase> {
        std::iter::successors(Some(self.phase(consumed_samples)), |last| {
            let samples = last.num_steps.checked_mul(last.batch_size)?;
            Some(self.phase(last.consumed_samples.checked_add(samples)?))
        })
    }

    /// The steps that begin after `consumed_samples` and have its batch size.
    fn phase(&self, consumed_samples: u64) -> BatchSizePhase {
        let batch_size = self.global_batch_size(consumed_samples) as u64;
        let next_size_from = self.ramp_up.and_then(|ramp_up| {
            let most = self.num_increments(&ramp_up) as u64;
            let next = self.increments_at(&ramp_up, consumed_samples) as u64 + 1;
            (next <= most).then(|| (next * ramp_up.samples).div_ceil(most))
        });
        BatchSizePhase {
            consumed_samples,
            batch_size,
            num_steps: match next_size_from {
                None => u64::MAX,
                Some(from) => (from - consumed_samples).div_ceil(batch_size),
            },
        }
    }
}

/// The divisors of `number` on either side of `value`, as text.
fn nearest_divisors(value: usize, number: usize) -> String {
    let small = (1..=number.isqrt()).filter(|divisor| number.is_multiple_of(*divisor));
    let (mut below, mut above) = (None, None);
    for divisor in small.flat_map(|divisor| [divisor, number / divisor]) {
        if divisor < value {
            below = below.max(Some(divisor));
        } else {
            above = Some(above.map_or(divisor, |above: usize| above.min(divisor)));
        }
    }
    let nearest: Vec<String> = below.iter().chain(&above).map(usize::to_string).collect();
    nearest.join(" and ")
}

#[cfg(test)]
mod tests;
