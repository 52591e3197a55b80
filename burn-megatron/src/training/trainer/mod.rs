//! `Trainer`: one optimiser step of a language model in any layout.

mod checks;
mod evaluation;
mod groups;
mod state;

use std::cell::RefCell;

use burn::module::Module;
use burn::tensor::{Device, Tensor};

use super::objective::Objective;
use super::token_count::TokenCount;
use super::token_losses::TokenLosses;
use super::{
    BatchSizeSchedule, LanguageModel, LearningRateSchedule, TokenBatch, TrainerConfig, TrainingConfig,
    TrainingConfigError, TrainingError, WeightDecaySchedule,
};
use crate::collectives::{ReduceOp, unwrap_or_unwind};
use crate::context::ParallelContext;
use crate::data::MicroBatch;
use crate::data_parallel::{
    DistributedDataParallel, GradientCounts, GradientEntry, ReducedGradients, clip_coefficient,
};
use crate::optimizer::{AnyOptimizer, LossScaler, ShardedOptimizer};
use crate::pipeline_parallel::schedule::{ScheduleConfig, ScheduleKind};
use crate::pipeline_parallel::{Activity, PipelineError, PipelineExecutor, Timeline, TimelineLabel};

use groups::{StepSettings, TrainerGroups, freeze};
pub use state::TrainerState;

/// The figures of one step that do not depend on time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepResult {
    /// Mean cross-entropy over the unmasked tokens of the global batch, before the step.
    pub loss: f64,
    /// L2 norm of the gradient over the whole model, before clipping.
    pub grad_norm: f64,
    /// Learning rate of the step.
    pub learning_rate: f64,
    /// What the loss was multiplied by for the backward pass; 1 without loss scaling.
    pub loss_scale: f64,
    /// Whether a gradient was not finite, so that nothing was changed but the loss scale.
    pub is_skipped: bool,
    /// Elements of the gradient that are zero or not finite, where they are counted.
    pub gradient_counts: Option<GradientCounts>,
}

/// Observer of a step's gradients.
type Inspect<'a> = dyn FnMut(&ReducedGradients) + 'a;

/// The chunks of this rank's stage of a model, with their optimizer, and how far they have come.
///
/// Without pipeline stages, the one chunk is the model.
pub struct Trainer<M: Module> {
    ddp: DistributedDataParallel<Vec<M>>,
    optimizer: ShardedOptimizer<AnyOptimizer>,
    groups: TrainerGroups,
    schedule: LearningRateSchedule,
    weight_decay: WeightDecaySchedule,
    batch_sizes: BatchSizeSchedule,
    executor: PipelineExecutor,
    /// What `executor` is made of, but for the number of micro-batches.
    stages: ScheduleConfig,
    timeline: Timeline,
    count_gradients: bool,
    config: TrainingConfig,
    context: ParallelContext,
    device: Device,
    loss_scaler: Option<LossScaler>,
    max_skipped_steps: u32,
    iteration: u64,
    consumed_samples: u64,
    /// Those of steps that were not skipped: what the learning rate goes by.
    schedule_samples: u64,
}

impl<M: Module + LanguageModel> Trainer<M> {
    /// Wraps the chunks of this rank's stage for training; the weights of all data-parallel ranks become those of the
    /// first. The parameters of frozen [groups](TrainingConfig::param_groups) are not trained.
    ///
    /// # Errors
    /// When the configuration does not fit the layout, the schedule does not fit the micro-batches, the optimizer
    /// cannot be offloaded, or as [`DistributedDataParallel::new`].
    pub fn new(
        chunks: Vec<M>,
        config: &TrainingConfig,
        trainer: TrainerConfig,
        context: &ParallelContext,
        device: &Device,
    ) -> Result<Self, TrainingError> {
        config.validate(context.grid(), context.is_sequence_parallel())?;
        let batch_sizes = config.batch_sizes().map_err(TrainingConfigError::from)?;
        let data_parallel_size = context.grid().data_parallel_size();
        let stages = ScheduleConfig {
            kind: trainer
                .schedule
                .unwrap_or_else(|| ScheduleKind::for_chunks(chunks.len())),
            num_stages: context.grid().pipeline_parallel_size(),
            num_chunks: chunks.len(),
            num_micro_batches: batch_sizes.global_batch_size(0) / (config.micro_batch_size * data_parallel_size),
        };
        config.validate_stages(&stages, data_parallel_size)?;
        let schedule = stages.init().map_err(PipelineError::from)?;
        let chunks = freeze::<M>(chunks, config, context)?;
        let ddp = DistributedDataParallel::new(chunks, context, trainer.data_parallel)?;
        let groups = TrainerGroups::new(config)?;
        let first = StepSettings {
            weight_decay: config.weight_decay.start,
            gradient_scale: 1.0,
        };
        let optimizers = groups.optimizers(config, first).map(AnyOptimizer::init);
        let of_entry = groups.clone();
        let group = move |entry: &GradientEntry| of_entry.optimizer_of(entry);
        let optimizer = ShardedOptimizer::with_groups_offloaded(&ddp, optimizers.collect(), group, &trainer.offload)?
            .with_overlap_param_gather(trainer.overlap_param_gather);
        Ok(Self {
            executor: PipelineExecutor::new(schedule, context)?,
            stages,
            batch_sizes,
            timeline: Timeline::default(),
            count_gradients: trainer.count_gradients,
            ddp,
            optimizer,
            groups,
            schedule: config.learning_rate_schedule().map_err(TrainingConfigError::from)?,
            weight_decay: config.weight_decay_schedule().map_err(TrainingConfigError::from)?,
            config: config.clone(),
            context: context.clone(),
            device: device.clone(),
            loss_scaler: trainer
                .loss_scale
                .map(|config| Ok::<_, TrainingError>(config.init()?.with_max_skips(trainer.max_skipped_steps)))
                .transpose()?,
            max_skipped_steps: trainer.max_skipped_steps,
            iteration: 0,
            consumed_samples: 0,
            schedule_samples: 0,
        })
    }

    /// Returns the same trainer, which records in `timeline` what this rank does, while that is on.
    pub fn with_timeline(self, timeline: &Timeline) -> Self {
        Self {
            executor: self.executor.with_timeline(timeline),
            timeline: timeline.clone(),
            ..self
        }
    }

    /// The chunks of this rank's stage.
    pub fn model(&self) -> &Vec<M> {
        self.ddp.module()
    }

    /// Carries out the last step's schedule, at first that of the first step.
    pub fn executor(&self) -> &PipelineExecutor {
        &self.executor
    }

    /// Steps taken.
    pub fn iteration(&self) -> u64 {
        self.iteration
    }

    /// Samples trained on, by all ranks together.
    pub fn consumed_samples(&self) -> u64 {
        self.consumed_samples
    }

    /// Samples of the next step, over all ranks.
    pub fn global_batch_size(&self) -> usize {
        self.batch_sizes.global_batch_size(self.consumed_samples)
    }

    /// Micro-batches that this rank takes in the next step.
    pub fn num_micro_batches(&self) -> usize {
        self.global_batch_size() / (self.config.micro_batch_size * self.context.grid().data_parallel_size())
    }

    /// Runs one optimiser step on this rank's [`num_micro_batches`](Self::num_micro_batches) micro-batches of a global
    /// batch.
    ///
    /// The loss is the sum of token losses over the number of tokens of the global batch, whatever the layout, plus the
    /// mean loss of its sentence pairs where there are some. With
    /// loss scaling, a step with a gradient that is not finite on some rank is skipped on all: parameters, the
    /// optimizer's state and the learning rate stay as they are.
    ///
    /// # Communication
    /// At an interval of steps (see
    /// [`DataParallelConfig::check_inputs_interval`](crate::data_parallel::DataParallelConfig)) one all-gather of 16
    /// bytes over the model group, to compare the micro-batches. That of the model, forward and backward, and between
    /// its stages; gradients as [`DistributedDataParallel::backward`] and [`DistributedDataParallel::gradients`]; two
    /// all-reduces of up to four numbers over the data-parallel group, one over the pipeline group, and those of
    /// [`ReducedGradients::global_norm`]; where gradients are counted that of [`ReducedGradients::counts`]; with loss
    /// scaling one of one number over the world; that of [`ShardedOptimizer::step`]. Where a step has another number
    /// of micro-batches than the one before, an all-gather of one number over the pipeline group.
    ///
    /// # Errors
    /// When the micro-batches are more or less than they should be, a token is none of the model's, every token is
    /// masked, a collective fails, a GPU has lost work, the replicas differ, loss or gradient are not finite without
    /// loss scaling, or a loss scale does not help.
    pub fn step(&mut self, micro_batches: &[MicroBatch]) -> Result<StepResult, TrainingError> {
        self.run_step(micro_batches, None)
    }

    /// Runs one step, showing the gradients to `inspect` after finalisation and before clipping, unless the step is
    /// skipped. Sharded gradients are gathered for it.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn step_inspected(
        &mut self,
        micro_batches: &[MicroBatch],
        inspect: impl FnOnce(&ReducedGradients),
    ) -> Result<StepResult, TrainingError> {
        let mut inspect = Some(inspect);
        let mut inspect_once = |gradients: &ReducedGradients| {
            if let Some(inspect) = inspect.take() {
                inspect(gradients);
            }
        };
        self.run_step(micro_batches, Some(&mut inspect_once))
    }

    fn run_step(
        &mut self,
        micro_batches: &[MicroBatch],
        inspect: Option<&mut Inspect<'_>>,
    ) -> Result<StepResult, TrainingError> {
        self.timeline.set_step(self.iteration + 1);
        self.fit_executor()?;
        if self.ddp.is_input_check_due() {
            self.check_same_batch(micro_batches)?;
        }
        let global_batch_size = self.global_batch_size();
        let loss_scale = self.loss_scaler.as_ref().map_or(1.0, LossScaler::scale);
        let losses = self.backward(micro_batches, loss_scale)?;
        let timeline = self.timeline.clone();
        let label = TimelineLabel::default();
        let (mut gradients, grad_norm, gradient_counts, loss) = timeline.measure(Activity::Reduction, label, || {
            let mut gradients = self.ddp.gradients()?;
            if loss_scale != 1.0 {
                gradients.scale(1.0 / loss_scale);
            }
            // A read waits for all that was launched before it.
            let (norm, values) = gradients.global_norm_and(losses.tensors(), &self.context)?;
            let counts = if self.count_gradients {
                Some(gradients.counts(&self.context)?)
            } else {
                None
            };
            let loss = losses.sums(&values, micro_batches).over_ranks(&self.context)?.mean();
            Ok::<_, TrainingError>((gradients, norm, counts, loss))
        })?;
        // Both have been read: what they are made of has been computed, or lost.
        #[cfg(feature = "cuda")]
        crate::cuda::check_work()?;
        let result = StepResult {
            loss,
            grad_norm,
            learning_rate: self.schedule.learning_rate(self.schedule_samples),
            loss_scale,
            is_skipped: self.is_skipped(grad_norm)?,
            gradient_counts,
        };
        if !result.is_skipped {
            self.check_finite("loss", result.loss, &gradients)?;
            self.check_finite("gradient norm", grad_norm, &gradients)?;
            if let Some(inspect) = inspect {
                gradients.gather()?;
                inspect(&gradients);
            }
            // Clipped as they are used, without a pass of its own.
            let clip = match self.config.clip_grad {
                0.0 => 1.0,
                max_norm => clip_coefficient(grad_norm, max_norm),
            };
            let settings = StepSettings {
                weight_decay: self.weight_decay.weight_decay(self.schedule_samples),
                gradient_scale: clip,
            };
            let (optimizer, ddp) = (&mut self.optimizer, &mut self.ddp);
            let fresh = self.groups.optimizers(&self.config, settings);
            for (optimizer, fresh) in optimizer.optimizers_mut().iter_mut().zip(fresh) {
                *optimizer = fresh;
            }
            timeline.measure(Activity::Optimizer, label, || {
                optimizer.step(result.learning_rate, ddp, gradients)
            })?;
            self.schedule_samples += global_batch_size as u64;
        }
        self.iteration += 1;
        self.consumed_samples += global_batch_size as u64;
        let interval = self.config.replica_check_interval;
        if interval > 0 && self.iteration.is_multiple_of(interval) {
            self.ddp.check_replicas()?;
        }
        Ok(result)
    }

    /// Tells the loss scaler whether the gradient is finite on all ranks, and returns whether the step is skipped.
    fn is_skipped(&mut self, grad_norm: f64) -> Result<bool, TrainingError> {
        let Some(scaler) = &mut self.loss_scaler else {
            return Ok(false);
        };
        let mut found = [i32::from(!grad_norm.is_finite())];
        self.context.world_group().all_reduce(&mut found, ReduceOp::Max)?;
        let (found, scale) = (found[0] > 0, scaler.scale());
        scaler.update(found)?;
        if scaler.state().skips_at_minimum == 1 && self.context.rank() == 0 {
            let (step, limit) = (self.iteration + 1, self.max_skipped_steps);
            tracing::warn!(
                "step {step} is skipped: a gradient is not finite at a loss scale of {scale}, which cannot fall \
                 further; training ends with an error after {limit} such steps in a row"
            );
        }
        Ok(found)
    }

    /// Makes the executor again if the next step has another number of micro-batches than it was made for.
    fn fit_executor(&mut self) -> Result<(), TrainingError> {
        let num_micro_batches = self.num_micro_batches();
        if num_micro_batches != self.executor.schedule().num_micro_batches {
            let stages = ScheduleConfig {
                num_micro_batches,
                ..self.stages
            };
            let schedule = stages.init().map_err(PipelineError::from)?;
            self.executor = PipelineExecutor::new(schedule, &self.context)?.with_timeline(&self.timeline);
        }
        Ok(())
    }

    /// Runs every micro-batch forward and backward; returns the losses of this rank's samples.
    fn backward(&mut self, micro_batches: &[MicroBatch], loss_scale: f64) -> Result<TokenLosses, TrainingError> {
        for micro_batch in micro_batches {
            self.check_tokens(micro_batch)?;
            Self::check_positions(micro_batch)?;
        }
        let data_group = self.context.data_group();
        let counts = TokenCount::start(micro_batches, data_group);
        // The wrapper averages over the data-parallel ranks; the global sum is wanted.
        let num_shares = data_group.size() as f64;
        let batches: Vec<TokenBatch> = micro_batches
            .iter()
            .map(|micro_batch| TokenBatch::new(micro_batch, self.config.seed, self.iteration))
            .collect();
        let losses = RefCell::new(TokenLosses::new(batches.len()));
        // Tensor-parallel ranks compare the first one in the steps in which they compare what they are given.
        let objective = Objective::new(&self.device, self.ddp.is_input_check_due());
        self.executor
            .train(&mut self.ddp, &batches, |number, token_losses: Tensor<1>| {
                losses.borrow_mut().put(number, token_losses.clone().inner());
                let counts = unwrap_or_unwind(counts.total());
                let scale = match counts.tokens {
                    // Such a step is given up.
                    0.0 => 0.0,
                    tokens => loss_scale * (num_shares / tokens),
                };
                objective.of(token_losses, counts.weights(&micro_batches[number]).as_deref(), scale)
            })?;
        if counts.total()?.tokens == 0.0 {
            self.ddp.forget_step();
            return Err(TrainingError::NoTokens {
                step: self.iteration + 1,
            });
        }
        Ok(losses.into_inner())
    }
}
