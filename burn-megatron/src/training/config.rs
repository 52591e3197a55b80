//! `TrainingConfig`: what a run is, apart from the model, the data and the layout. Validated before anything starts.
//!
//! Made by the command line, read by the trainer.

use serde::{Deserialize, Serialize};

use super::{LearningRateConfig, LearningRateDecay, LearningRateSchedule, ScheduleError};
use crate::optimizer::AdamWConfig;
use crate::topology::nearest_multiples;

/// The settings of a run. Names are those of Megatron-LM's flags.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainingConfig {
    /// Tokens per sample.
    pub seq_length: usize,
    /// Samples that a rank takes through the model at once.
    pub micro_batch_size: usize,
    /// Samples per optimiser step, over all ranks.
    pub global_batch_size: usize,
    /// Optimiser steps.
    pub train_iters: u64,
    /// The highest learning rate.
    pub lr: f64,
    /// The lowest learning rate, behind the decay.
    pub min_lr: f64,
    /// How the learning rate comes down.
    pub lr_decay_style: LearningRateDecay,
    /// The step at which the decay ends; `train_iters` if not given.
    pub lr_decay_iters: Option<u64>,
    /// Steps over which the learning rate rises from zero.
    pub lr_warmup_iters: u64,
    /// The share of a parameter that decays in a step of learning rate 1; biases and norms are spared.
    pub weight_decay: f64,
    /// The largest global norm of the gradient; larger ones are scaled down. 0 for none.
    pub clip_grad: f64,
    /// Decay of Adam's mean of gradients.
    pub adam_beta1: f64,
    /// Decay of Adam's mean of squared gradients.
    pub adam_beta2: f64,
    /// Added to the root of Adam's second moment.
    pub adam_eps: f64,
    /// The seed of initialisation, dropout and sample order.
    pub seed: u64,
    /// Steps between comparisons of replicated parameters over the ranks; 0 for none.
    pub replica_check_interval: u64,
}

/// Settings that no run can have.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TrainingConfigError {
    /// A setting outside its range.
    #[error("{name} must be {rule}, got {value}")]
    OutOfRange {
        /// The setting.
        name: &'static str,
        /// What it must be.
        rule: &'static str,
        /// What it is.
        value: f64,
    },
    /// A global batch that is no whole number of micro-batches.
    #[error(
        "the global batch size must be a multiple of micro-batch size * data-parallel size = {micro} * {data}, \
         got {global}; the nearest valid sizes are {nearest}"
    )]
    GlobalBatch {
        /// The global batch size.
        global: usize,
        /// The micro-batch size.
        micro: usize,
        /// The data-parallel size.
        data: usize,
        /// The nearest valid sizes, as text.
        nearest: String,
    },
    /// Tokens of a micro-batch that sequence parallelism cannot share out.
    #[error(
        "under sequence parallelism the tensor-parallel size {tensor} must divide micro-batch size * sequence length \
         = {micro} * {seq} = {tokens}; for one, a sequence length of {nearest} does",
        tokens = micro * seq
    )]
    SequenceShards {
        /// The tensor-parallel size.
        tensor: usize,
        /// The micro-batch size.
        micro: usize,
        /// The sequence length.
        seq: usize,
        /// A sequence length that would do.
        nearest: usize,
    },
    /// A learning rate that is no schedule.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
}

impl TrainingConfig {
    /// Checks every setting, against each other and the layout.
    ///
    /// # Errors
    /// The first rule that is broken, with the values and the nearest valid ones.
    pub fn validate(
        &self,
        grid: &crate::topology::RankGrid,
        sequence_parallel: bool,
    ) -> Result<(), TrainingConfigError> {
        let out_of_range = |name, rule, value| Err(TrainingConfigError::OutOfRange { name, rule, value });
        for (name, value) in [
            ("--seq-length", self.seq_length),
            ("--micro-batch-size", self.micro_batch_size),
            ("--global-batch-size", self.global_batch_size),
            ("--train-iters", self.train_iters.min(1) as usize),
        ] {
            if value == 0 {
                return out_of_range(name, "at least 1", 0.0);
            }
        }
        for (name, value) in [
            ("--weight-decay", self.weight_decay),
            ("--clip-grad", self.clip_grad),
            ("--adam-eps", self.adam_eps),
        ] {
            if !(value.is_finite() && value >= 0.0) {
                return out_of_range(name, "finite and not negative", value);
            }
        }
        for (name, value) in [("--adam-beta1", self.adam_beta1), ("--adam-beta2", self.adam_beta2)] {
            if !(0.0..1.0).contains(&value) {
                return out_of_range(name, "in [0, 1)", value);
            }
        }
        if self
            .train_iters
            .checked_mul(self.global_batch_size as u64)
            .is_none_or(|n| n >= 1 << 32)
        {
            let rule = "such that train-iters * global-batch-size is below 2^32";
            return out_of_range("--train-iters", rule, self.train_iters as f64);
        }
        self.num_micro_batches(grid.data_parallel_size())?;
        let (tensor, tokens) = (grid.tensor_parallel_size(), self.micro_batch_size * self.seq_length);
        if sequence_parallel && !tokens.is_multiple_of(tensor) {
            return Err(TrainingConfigError::SequenceShards {
                tensor,
                micro: self.micro_batch_size,
                seq: self.seq_length,
                nearest: self.seq_length.next_multiple_of(tensor),
            });
        }
        self.schedule()?;
        Ok(())
    }

    /// Returns how many micro-batches each rank takes in a step.
    ///
    /// # Errors
    /// When the global batch is no whole number of them.
    pub fn num_micro_batches(&self, data_parallel_size: usize) -> Result<usize, TrainingConfigError> {
        let per_round = self.micro_batch_size * data_parallel_size;
        if per_round > 0 && self.global_batch_size.is_multiple_of(per_round) {
            return Ok(self.global_batch_size / per_round);
        }
        Err(TrainingConfigError::GlobalBatch {
            global: self.global_batch_size,
            micro: self.micro_batch_size,
            data: data_parallel_size,
            nearest: nearest_multiples(self.global_batch_size, per_round.max(1)),
        })
    }

    /// Returns the learning-rate schedule, counted in samples.
    ///
    /// # Errors
    /// When the rates or the lengths are not in order.
    pub fn schedule(&self) -> Result<LearningRateSchedule, ScheduleError> {
        let samples = |iterations: u64| iterations.saturating_mul(self.global_batch_size as u64);
        LearningRateSchedule::new(LearningRateConfig {
            decay: self.lr_decay_style,
            init: 0.0,
            max: self.lr,
            min: self.min_lr,
            warm_up_samples: samples(self.lr_warmup_iters),
            decay_samples: samples(self.lr_decay_iters.unwrap_or(self.train_iters)),
        })
    }

    /// Returns the optimizer's configuration with this weight decay.
    pub fn adamw(&self, weight_decay: f64) -> AdamWConfig {
        AdamWConfig::new()
            .with_beta_1(self.adam_beta1)
            .with_beta_2(self.adam_beta2)
            .with_epsilon(self.adam_eps)
            .with_weight_decay(weight_decay)
    }
}
