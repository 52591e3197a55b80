//! `TrainingConfig`: what a run is, apart from the model, the data and the layout. Validated before anything starts.

use burn::config::Config;

use super::{
    BatchSizeError, BatchSizeRampUp, BatchSizeSchedule, LearningRateConfig, LearningRateSchedule, ScheduleError,
    WeightDecayConfig, WeightDecayError, WeightDecaySchedule,
};
use crate::optimizer::{
    AdafactorConfig, Adam, AdamWConfig, AnyOptimizer, LionConfig, MuonConfig, OptimizerChoice, OptimizerKind,
    ParameterGroup, ParameterGroupError, ParameterGroups, SgdConfig,
};
use crate::pipeline_parallel::schedule::{self, ScheduleConfig};
use crate::topology::nearest_multiples;

/// How many batch sizes on either side of an invalid one are looked at for a valid one.
const NEIGHBOURS: usize = 1 << 12;

/// The settings of a run, counted in samples. Most names are those of Megatron-LM's flags.
#[derive(Config, Debug, PartialEq)]
pub struct TrainingConfig {
    /// Tokens per sample.
    pub seq_length: usize,
    /// Samples that a rank takes through the model at once.
    pub micro_batch_size: usize,
    /// Samples per optimiser step, over all ranks, after a ramp-up.
    pub global_batch_size: usize,
    /// Smaller global batches at the beginning.
    pub rampup_batch_size: Option<BatchSizeRampUp>,
    /// Samples to train on; a last batch that is not full is left out.
    pub train_samples: u64,
    /// The learning rate over the samples.
    pub learning_rate: LearningRateConfig,
    /// The weight decay over the samples; biases and norms are spared.
    #[config(default = "WeightDecayConfig::constant(0.01)")]
    pub weight_decay: WeightDecayConfig,
    /// The largest global norm of the gradient; larger ones are scaled down. 0 for none.
    #[config(default = 1.0)]
    pub clip_grad: f64,
    /// Decay of Adam's mean of gradients.
    #[config(default = 0.9)]
    pub adam_beta1: f64,
    /// Decay of Adam's mean of squared gradients.
    #[config(default = 0.999)]
    pub adam_beta2: f64,
    /// Added to the root of Adam's second moment.
    #[config(default = 1e-8)]
    pub adam_eps: f64,
    /// The momentum of gradient descent, which is the optimizer if this is given and `optimizer` is not; 0 for none.
    pub sgd_momentum: Option<f64>,
    /// The optimizer, if not given AdamW, or gradient descent where that has a momentum.
    pub optimizer: Option<OptimizerChoice>,
    /// Parameters that are trained otherwise than the others, or not at all.
    pub param_groups: Option<ParameterGroups>,
    /// The seed of initialisation, dropout and sample order.
    #[config(default = 1234)]
    pub seed: u64,
    /// Steps between comparisons of replicated parameters over the ranks; 0 for none.
    #[config(default = 0)]
    pub replica_check_interval: u64,
}

/// Settings that no run can have.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum TrainingConfigError {
    #[error("{name} must be {rule}, got {value}")]
    OutOfRange {
        name: &'static str,
        rule: &'static str,
        value: f64,
    },
    #[error(
        "{which} must be a multiple of micro-batch size * data-parallel size = {micro} * {data}, got {global}; \
         the nearest valid sizes are {nearest}"
    )]
    GlobalBatch {
        /// What it is: the one size, or one of many.
        which: &'static str,
        global: usize,
        micro: usize,
        data: usize,
        nearest: String,
    },
    #[error(
        "under sequence parallelism the tensor-parallel size {tensor} must divide micro-batch size * sequence length \
         = {micro} * {seq} = {tokens}; for one, a sequence length of {nearest} does",
        tokens = micro * seq
    )]
    SequenceShards {
        tensor: usize,
        micro: usize,
        seq: usize,
        nearest: usize,
    },
    #[error(
        "training must have the samples of at least one step: the first global batch is {global}, got {samples} samples"
    )]
    NoStep { global: usize, samples: u64 },
    #[error(
        "a global batch size of {global}, which the ramp-up comes to, is {num_micro_batches} micro-batches, and these \
         the stages cannot take: {source}; the nearest valid sizes are {nearest}"
    )]
    Stages {
        global: usize,
        num_micro_batches: usize,
        source: Box<schedule::ScheduleError>,
        nearest: String,
    },
    /// Micro-batches that the stages cannot take.
    #[error(transparent)]
    Pipeline(#[from] schedule::ScheduleError),
    /// A group of parameters that cannot be.
    #[error(transparent)]
    Groups(#[from] ParameterGroupError),
    /// A learning rate that is no schedule.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// A weight decay that is no schedule.
    #[error(transparent)]
    WeightDecay(#[from] WeightDecayError),
    /// A global batch size that is no schedule.
    #[error(transparent)]
    BatchSize(#[from] BatchSizeError),
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
        ] {
            if !(1..1 << 32).contains(&(value as u64)) {
                return out_of_range(name, "at least 1 and below 2^32", value as f64);
            }
        }
        for (name, value) in [
            ("--clip-grad", self.clip_grad),
            ("--adam-eps", self.adam_eps),
            (
                "--muon-extra-scale-factor",
                self.optimizer_choice().muon.extra_scale_factor,
            ),
            (
                "--adafactor-eps1",
                self.optimizer_choice().adafactor.eps1.unwrap_or_default(),
            ),
            ("--adafactor-eps2", self.optimizer_choice().adafactor.eps2),
        ] {
            if !(value.is_finite() && value >= 0.0) {
                return out_of_range(name, "finite and not negative", value);
            }
        }
        for (name, value) in [
            ("--adam-beta1", self.adam_beta1),
            ("--adam-beta2", self.adam_beta2),
            ("--sgd-momentum", self.sgd_momentum.unwrap_or_default()),
            ("--muon-momentum", self.optimizer_choice().muon.momentum),
            ("--lion-beta1", self.optimizer_choice().lion_betas[0]),
            ("--lion-beta2", self.optimizer_choice().lion_betas[1]),
        ] {
            if !(0.0..1.0).contains(&value) {
                return out_of_range(name, "in [0, 1)", value);
            }
        }
        let adafactor = self.optimizer_choice().adafactor;
        if !(adafactor.beta2_decay.is_finite() && adafactor.beta2_decay <= 0.0) {
            return out_of_range(
                "--adafactor-beta2-decay",
                "finite and not positive",
                adafactor.beta2_decay,
            );
        }
        if !(adafactor.clip_threshold.is_finite() && adafactor.clip_threshold >= 1.0) {
            return out_of_range("--adafactor-clip-threshold", "at least 1", adafactor.clip_threshold);
        }
        if self.train_samples >= 1 << 32 {
            let value = self.train_samples as f64;
            return out_of_range("the samples to train on (--train-samples)", "below 2^32", value);
        }
        let batch_sizes = self.batch_sizes()?;
        // Where the first two are multiples, all are.
        for size in batch_sizes.sizes().take(2) {
            self.micro_batches_of(size, grid.data_parallel_size())?;
        }
        let first = batch_sizes.global_batch_size(0);
        if (first as u64) > self.train_samples {
            return Err(TrainingConfigError::NoStep {
                global: first,
                samples: self.train_samples,
            });
        }
        let tensor = grid.tensor_parallel_size();
        // Both factors are below 2^32.
        let tokens = self.micro_batch_size as u64 * self.seq_length as u64;
        if sequence_parallel && !tokens.is_multiple_of(tensor as u64) {
            return Err(TrainingConfigError::SequenceShards {
                tensor,
                micro: self.micro_batch_size,
                seq: self.seq_length,
                nearest: self.seq_length.next_multiple_of(tensor),
            });
        }
        self.learning_rate_schedule()?;
        self.weight_decay_schedule()?;
        self.groups().validate()?;
        Ok(())
    }

    /// Checks that the stages can take every global batch that training comes to have. `stages` says all but the number
    /// of micro-batches.
    ///
    /// # Errors
    /// The first size that they cannot take, with the nearest valid ones; as [`validate`](Self::validate).
    pub fn validate_stages(
        &self,
        stages: &ScheduleConfig,
        data_parallel_size: usize,
    ) -> Result<(), TrainingConfigError> {
        let check = |num_micro_batches| {
            let stages = ScheduleConfig {
                num_micro_batches,
                ..*stages
            };
            stages.validate()
        };
        for global in self.batch_sizes()?.sizes() {
            let num_micro_batches = self.micro_batches_of(global, data_parallel_size)?;
            if let Err(source) = check(num_micro_batches) {
                let per_round = global / num_micro_batches;
                let below = (1..num_micro_batches).rev().take(NEIGHBOURS);
                let above = (num_micro_batches + 1..).take(NEIGHBOURS);
                let valid = |&number: &usize| check(number).is_ok();
                let nearest: Vec<String> = (below.clone().find(valid).into_iter())
                    .chain(above.clone().find(valid))
                    .map(|number| (number * per_round).to_string())
                    .collect();
                return Err(match self.rampup_batch_size {
                    Some(_) if !nearest.is_empty() => TrainingConfigError::Stages {
                        global,
                        num_micro_batches,
                        source: source.into(),
                        nearest: nearest.join(" and "),
                    },
                    _ => source.into(),
                });
            }
        }
        Ok(())
    }

    /// Returns how many micro-batches each rank takes in a step of the full global batch.
    ///
    /// # Errors
    /// When the global batch is no whole number of them.
    pub fn num_micro_batches(&self, data_parallel_size: usize) -> Result<usize, TrainingConfigError> {
        self.micro_batches_of(self.global_batch_size, data_parallel_size)
    }

    fn micro_batches_of(&self, global: usize, data_parallel_size: usize) -> Result<usize, TrainingConfigError> {
        let per_round = self.micro_batch_size.saturating_mul(data_parallel_size);
        if per_round > 0 && global.is_multiple_of(per_round) {
            return Ok(global / per_round);
        }
        Err(TrainingConfigError::GlobalBatch {
            which: match self.rampup_batch_size {
                None => "the global batch size",
                Some(_) => "every global batch size of the ramp-up",
            },
            global,
            micro: self.micro_batch_size,
            data: data_parallel_size,
            nearest: nearest_multiples(global, per_round.max(1)),
        })
    }

    /// Returns the global batch size over the consumed samples.
    ///
    /// # Errors
    /// When a size is out of range, or the ramp-up does not fit the full size.
    pub fn batch_sizes(&self) -> Result<BatchSizeSchedule, BatchSizeError> {
        BatchSizeSchedule::new(self.global_batch_size, self.rampup_batch_size)
    }

    /// Returns the number of optimiser steps.
    ///
    /// # Errors
    /// As [`batch_sizes`](Self::batch_sizes).
    pub fn num_steps(&self) -> Result<u64, BatchSizeError> {
        Ok(self.batch_sizes()?.num_steps(self.train_samples))
    }

    /// Returns the learning rate over the samples.
    ///
    /// # Errors
    /// When the rates or the lengths are not in order.
    pub fn learning_rate_schedule(&self) -> Result<LearningRateSchedule, ScheduleError> {
        LearningRateSchedule::new(self.learning_rate)
    }

    /// Returns the weight decay over the samples, of the parameters that decay.
    ///
    /// # Errors
    /// When the decays or the length are not in order.
    pub fn weight_decay_schedule(&self) -> Result<WeightDecaySchedule, WeightDecayError> {
        WeightDecaySchedule::new(self.weight_decay)
    }

    /// Returns the optimizer.
    pub fn optimizer_choice(&self) -> OptimizerChoice {
        self.optimizer.unwrap_or(OptimizerChoice::new(match self.sgd_momentum {
            None => OptimizerKind::AdamW,
            Some(_) => OptimizerKind::Sgd,
        }))
    }

    /// Returns the groups of parameters that are trained otherwise than the others.
    pub fn groups(&self) -> ParameterGroups {
        self.param_groups.clone().unwrap_or_default()
    }

    /// Returns how many tensors the optimizer keeps of each parameter: the most, where groups have different ones.
    pub fn num_state_tensors(&self) -> usize {
        let groups = self.groups();
        let of_groups = groups
            .groups()
            .iter()
            .filter_map(|group: &ParameterGroup| group.optimizer);
        let kinds = of_groups.chain([self.optimizer_choice().kind]);
        let tensors = kinds.map(|kind| match kind {
            // Muon's own is one; embeddings have AdamW's two.
            OptimizerKind::AdamW | OptimizerKind::Adam | OptimizerKind::Muon => 2,
            OptimizerKind::Sgd => usize::from(self.momentum() != 0.0),
            OptimizerKind::Lion => 1,
            // Its rows and columns are counted apart.
            OptimizerKind::Adafactor => 0,
        });
        tensors.max().unwrap_or_default()
    }

    /// Returns whether the optimizer that keeps most has a state in factors: Adafactor, where no other keeps a tensor
    /// with an element for each of the parameter's.
    pub fn has_factored_state(&self) -> bool {
        self.uses(OptimizerKind::Adafactor) && self.num_state_tensors() == 0
    }

    /// Returns whether some parameters have this optimizer.
    pub fn uses(&self, kind: OptimizerKind) -> bool {
        let groups = self.groups();
        let mut kinds = groups.groups().iter().filter_map(|group| group.optimizer);
        self.optimizer_choice().kind == kind || kinds.any(|other| other == kind)
    }

    /// The momentum of gradient descent.
    fn momentum(&self) -> f64 {
        self.sgd_momentum.unwrap_or(SgdConfig::new().momentum)
    }

    /// Returns an optimizer with this run's numbers, and this weight decay.
    pub(super) fn build_optimizer(&self, kind: OptimizerKind, weight_decay: f64) -> AnyOptimizer {
        let [beta_1, beta_2] = self.optimizer_choice().lion_betas;
        match kind {
            OptimizerKind::AdamW => self.adamw(weight_decay).build().into(),
            OptimizerKind::Adam => Adam::new(&self.adamw(weight_decay)).into(),
            OptimizerKind::Sgd => SgdConfig {
                momentum: self.momentum(),
                weight_decay,
            }
            .build()
            .into(),
            OptimizerKind::Muon => MuonConfig {
                weight_decay,
                ..self.optimizer_choice().muon
            }
            .build()
            .into(),
            OptimizerKind::Adafactor => AdafactorConfig {
                weight_decay,
                ..self.optimizer_choice().adafactor
            }
            .build()
            .into(),
            OptimizerKind::Lion => LionConfig {
                beta_1,
                beta_2,
                weight_decay,
            }
            .build()
            .into(),
        }
    }

    /// Returns AdamW's configuration with this weight decay.
    pub fn adamw(&self, weight_decay: f64) -> AdamWConfig {
        AdamWConfig::new()
            .with_beta_1(self.adam_beta1)
            .with_beta_2(self.adam_beta2)
            .with_epsilon(self.adam_eps)
            .with_weight_decay(weight_decay)
    }
}

#[cfg(test)]
mod tests;
