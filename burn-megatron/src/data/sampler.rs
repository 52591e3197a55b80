//! Which samples a rank reads, micro-batch by micro-batch.

use burn::config::Config;

use super::error::DataError;

/// What a sampler counts with.
#[derive(Config, Debug, PartialEq, Eq)]
pub struct SamplerConfig {
    /// Samples to hand out over the whole run, all ranks together.
    pub num_samples: u64,
    /// Samples already trained on, 0 for a new run: where a resumed run continues.
    #[config(default = 0)]
    pub consumed_samples: u64,
    /// Samples per micro-batch and data-parallel rank.
    pub micro_batch_size: usize,
    /// Number of data-parallel ranks.
    #[config(default = 1)]
    pub data_parallel_size: usize,
    /// This rank among them.
    #[config(default = 0)]
    pub data_parallel_rank: usize,
}

/// Yields the samples of this rank's micro-batches, as numbers that mean the same on every rank.
///
/// The cursor is the number of consumed samples, n. A step takes the next `mbs · dp` samples, of
/// which data-parallel rank r gets `n + r · mbs .. n + (r+1) · mbs`. So `dp` ranks with m
/// micro-batches read the same global batch as one rank with `m · dp`, and a run can resume with
/// another layout.
///
/// The number of a sample is its place in training order, which no other sample of the run has,
/// later epochs included: dropout takes it as its key. A last step that is not full is left out.
///
/// # Reference
/// Megatron-LM's `MegatronPretrainingSampler`.
#[derive(Debug, Clone)]
pub struct Sampler {
    config: SamplerConfig,
    consumed_samples: u64,
}

impl Sampler {
    /// Returns a sampler that continues after the consumed samples.
    ///
    /// # Errors
    /// A size is 0, the rank is not below the size, or more samples are consumed than there are.
    pub fn new(config: SamplerConfig) -> Result<Self, DataError> {
        let positive = [
            ("micro-batch size (--micro-batch-size)", config.micro_batch_size),
            ("data-parallel size", config.data_parallel_size),
        ];
        for (name, value) in positive {
            if value == 0 {
                return Err(DataError::configuration(name, "at least 1", 0_u64));
            }
        }
        if config.data_parallel_rank >= config.data_parallel_size {
            let rule = format!("below the data-parallel size {}", config.data_parallel_size);
            let value = config.data_parallel_rank as u64;
            return Err(DataError::configuration("data-parallel rank", rule, value));
        }
        if config.consumed_samples > config.num_samples {
            let rule = format!("at most the number of samples {}", config.num_samples);
            return Err(DataError::configuration(
                "consumed samples",
                rule,
                config.consumed_samples,
            ));
        }
        let consumed_samples = config.consumed_samples;
        Ok(Self {
            config,
            consumed_samples,
        })
    }

    /// Returns the samples consumed by all ranks: those before the run and those yielded.
    pub fn consumed_samples(&self) -> u64 {
        self.consumed_samples
    }

    /// Returns the samples of one rank's micro-batch.
    pub fn micro_batch_size(&self) -> usize {
        self.config.micro_batch_size
    }
}

impl Iterator for Sampler {
    type Item = Vec<u64>;

    fn next(&mut self) -> Option<Vec<u64>> {
        let micro_batch_size = self.config.micro_batch_size as u64;
        let step = micro_batch_size * self.config.data_parallel_size as u64;
        if self.config.num_samples - self.consumed_samples < step {
            return None;
        }
        let start = self.consumed_samples + micro_batch_size * self.config.data_parallel_rank as u64;
        self.consumed_samples += step;
        Some((start..start + micro_batch_size).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn config(micro_batch_size: usize, data_parallel_size: usize, rank: usize) -> SamplerConfig {
        SamplerConfig {
            num_samples: 23,
            consumed_samples: 0,
            micro_batch_size,
            data_parallel_size,
            data_parallel_rank: rank,
        }
    }

    #[test]
    fn ranks_take_neighbouring_micro_batches() {
        let batches = |rank| Sampler::new(config(3, 2, rank)).unwrap().collect::<Vec<_>>();
        assert_eq!(batches(0), [[0, 1, 2], [6, 7, 8], [12, 13, 14]]);
        assert_eq!(batches(1), [[3, 4, 5], [9, 10, 11], [15, 16, 17]]);
    }

    #[test]
    fn a_resumed_sampler_continues_where_the_first_stopped() {
        let mut first = Sampler::new(config(2, 3, 1)).unwrap();
        first.next();
        assert_eq!(first.consumed_samples(), 6);
        let resumed = SamplerConfig {
            consumed_samples: first.consumed_samples(),
            ..config(2, 3, 1)
        };
        let resumed = Sampler::new(resumed).unwrap();
        assert_eq!(resumed.collect::<Vec<_>>(), first.collect::<Vec<_>>());
    }

    #[test]
    fn impossible_configurations_are_errors() {
        let message = |config| Sampler::new(config).unwrap_err().to_string();
        assert_eq!(
            message(config(0, 1, 0)),
            "micro-batch size (--micro-batch-size) must be at least 1, got 0"
        );
        assert_eq!(
            message(config(1, 2, 2)),
            "data-parallel rank must be below the data-parallel size 2, got 2"
        );
        let consumed = SamplerConfig {
            consumed_samples: 24,
            ..config(1, 1, 0)
        };
        assert_eq!(
            message(consumed),
            "consumed samples must be at most the number of samples 23, got 24"
        );
    }

    proptest! {
        #[test]
        fn all_ranks_together_read_every_sample_once(
            micro_batch_size in 1usize..5,
            data_parallel_size in 1usize..5,
        ) {
            let sampler = |rank| config(micro_batch_size, data_parallel_size, rank);
            let mut samplers: Vec<Sampler> = (0..data_parallel_size)
                .map(|rank| Sampler::new(sampler(rank)).unwrap())
                .collect();
            let mut read = vec![];
            loop {
                let step: Option<Vec<_>> = samplers.iter_mut().map(Iterator::next).collect();
                let Some(step) = step else { break };
                read.extend(step.concat());
            }
            let step = (micro_batch_size * data_parallel_size) as u64;
            prop_assert_eq!(read, (0..23 / step * step).collect::<Vec<u64>>());
        }
    }
}
