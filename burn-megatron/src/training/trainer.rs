//! `Trainer`: one optimiser step of a language model in any layout, and its validation.
//!
//! Called by training programs and by the parity tests.

use std::borrow::Cow;

use burn::module::AutodiffModule;
use burn::optim::Optimizer;
use burn::optim::adaptor::OptimizerAdaptor;
use burn::tensor::{Tensor, backend::Backend};

use super::{LanguageModel, LearningRateSchedule, TokenBatch, TrainingConfig, TrainingConfigError};
use crate::collectives::{CollectiveError, ReduceOp, catch_collective_error};
use crate::context::ParallelContext;
use crate::data::MicroBatch;
use crate::data_parallel::{
    DataParallelConfig, DataParallelError, DistributedDataParallel, HookBackend, ReducedGradients, StepPart,
};
use crate::mutants::{self, Mutant};
use crate::optimizer::AdamW;

/// What can end training.
#[derive(Debug, thiserror::Error)]
pub enum TrainingError {
    /// Settings that no run can have.
    #[error(transparent)]
    Config(#[from] TrainingConfigError),
    /// A collective failed, or replicas differ.
    #[error(transparent)]
    DataParallel(#[from] DataParallelError),
    /// A collective outside the backward pass failed.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    /// A token that the model does not know.
    #[error("token {token} is none of the {vocab_size} that the model knows, 0 to {}", vocab_size - 1)]
    UnknownToken {
        /// The token.
        token: i32,
        /// The size of the vocabulary, without padding.
        vocab_size: usize,
    },
    /// A global batch without a token that counts.
    #[error("every token of step {step} is masked: there is nothing to learn")]
    NoTokens {
        /// The step, counted from 1.
        step: u64,
    },
    /// A loss or a gradient is infinite or not a number.
    #[error(
        "the {what} of step {step} is {value} on rank {rank}{parameter}; \
         nothing was changed by this step: lower the learning rate, or look at the data"
    )]
    NotFinite {
        /// The quantity.
        what: &'static str,
        /// The step, counted from 1.
        step: u64,
        /// Its value.
        value: f64,
        /// This rank.
        rank: usize,
        /// Which parameter, as text to append.
        parameter: String,
    },
}

/// The figures of one step that do not depend on time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepResult {
    /// Mean cross-entropy over the unmasked tokens of the global batch, before the step.
    pub loss: f64,
    /// L2 norm of the gradient over the whole model, before clipping.
    pub grad_norm: f64,
    /// Learning rate of the step.
    pub learning_rate: f64,
}

/// A model with its optimizer, and how far it has come.
pub struct Trainer<B: HookBackend, M: AutodiffModule<B>> {
    ddp: DistributedDataParallel<B, M>,
    /// Parameters of two dimensions and more, which decay, and the others: biases and norms.
    optimizers: [OptimizerAdaptor<AdamW, M, B>; 2],
    schedule: LearningRateSchedule,
    config: TrainingConfig,
    context: ParallelContext,
    device: B::Device,
    iteration: u64,
    consumed_samples: u64,
}

impl<B: HookBackend, M: AutodiffModule<B> + LanguageModel<B>> Trainer<B, M>
where
    M::InnerModule: LanguageModel<B::InnerBackend>,
{
    /// Wraps a model for training; the weights of all data-parallel ranks become those of the first.
    ///
    /// # Errors
    /// When the configuration does not fit the layout, or as [`DistributedDataParallel::new`].
    pub fn new(
        model: M,
        config: &TrainingConfig,
        data_parallel: DataParallelConfig,
        context: &ParallelContext,
        device: &B::Device,
    ) -> Result<Self, TrainingError> {
        config.validate(context.grid(), context.is_sequence_parallel())?;
        Ok(Self {
            ddp: DistributedDataParallel::new(model, context, data_parallel)?,
            optimizers: [config.adamw(config.weight_decay).init(), config.adamw(0.0).init()],
            schedule: config.schedule().map_err(TrainingConfigError::from)?,
            config: config.clone(),
            context: context.clone(),
            device: device.clone(),
            iteration: 0,
            consumed_samples: 0,
        })
    }

    /// The model.
    pub fn model(&self) -> &M {
        self.ddp.module()
    }

    /// Steps taken.
    pub fn iteration(&self) -> u64 {
        self.iteration
    }

    /// Runs one optimiser step on this rank's micro-batches of a global batch.
    ///
    /// The loss is the sum of token losses over the number of tokens of the global batch, whatever the layout.
    ///
    /// # Communication
    /// That of the model, forward and backward; gradients as [`DistributedDataParallel::backward`] and
    /// [`DistributedDataParallel::gradients`]; two all-reduces of one number over the data-parallel group and one over
    /// the model group.
    ///
    /// # Errors
    /// When a token is none of the model's, every token is masked, a collective fails, the replicas differ, or loss or
    /// gradient are not finite.
    pub fn step(&mut self, micro_batches: &[MicroBatch]) -> Result<StepResult, TrainingError> {
        self.step_inspected(micro_batches, |_| {})
    }

    /// Runs one step, showing the gradients to `inspect` after finalisation and before clipping.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn step_inspected(
        &mut self,
        micro_batches: &[MicroBatch],
        inspect: impl FnOnce(&ReducedGradients),
    ) -> Result<StepResult, TrainingError> {
        let (local_loss, tokens) = self.backward(micro_batches)?;
        let mut gradients = self.ddp.gradients()?;
        let mut loss = [local_loss];
        self.context.data_group().all_reduce(&mut loss, ReduceOp::Sum)?;
        let loss = loss[0] / tokens;
        let grad_norm = gradients.global_norm(&self.context)?;
        self.check_finite("loss", loss, None)?;
        self.check_finite("gradient norm", grad_norm, Some(&gradients))?;
        inspect(&gradients);
        if self.config.clip_grad > 0.0 {
            gradients.clip(grad_norm, self.config.clip_grad);
        }
        let learning_rate = self.schedule.learning_rate(self.consumed_samples);
        self.update(gradients, learning_rate)?;
        self.iteration += 1;
        self.consumed_samples += self.config.global_batch_size as u64;
        let interval = self.config.replica_check_interval;
        if interval > 0 && self.iteration.is_multiple_of(interval) {
            self.ddp.check_replicas()?;
        }
        Ok(StepResult {
            loss,
            grad_norm,
            learning_rate,
        })
    }

    /// Returns the mean loss over this rank's share of validation micro-batches and those of the other data-parallel
    /// ranks, without dropout.
    ///
    /// # Communication
    /// That of the model, forward; one all-reduce of two numbers over the data-parallel group.
    ///
    /// # Errors
    /// When a collective fails.
    pub fn evaluate(&self, micro_batches: impl IntoIterator<Item = MicroBatch>) -> Result<f64, TrainingError> {
        let model = self.ddp.module().valid();
        let mut total = [0.0, 0.0];
        for micro_batch in micro_batches {
            let batch = TokenBatch::new(&micro_batch, self.config.seed, 0, &self.device);
            let losses = catch_collective_error(|| host_losses(model.token_losses(batch)))?;
            let (sum, count) = masked_sum(&losses, micro_batch.loss_mask.as_deref());
            total[0] += sum;
            total[1] += count;
        }
        self.context.data_group().all_reduce(&mut total, ReduceOp::Sum)?;
        Ok(total[0] / total[1])
    }

    /// Runs every micro-batch forward and backward; returns the sum of this rank's losses and the number of tokens of
    /// the global batch.
    fn backward(&mut self, micro_batches: &[MicroBatch]) -> Result<(f64, f64), TrainingError> {
        for micro_batch in micro_batches {
            self.check_tokens(micro_batch)?;
        }
        let data_group = self.context.data_group();
        let mut tokens = [micro_batches.iter().map(num_unmasked).sum::<f64>()];
        data_group.all_reduce(&mut tokens, ReduceOp::Sum)?;
        if tokens[0] == 0.0 {
            return Err(TrainingError::NoTokens {
                step: self.iteration + 1,
            });
        }
        // The wrapper averages over the data-parallel ranks; the global sum is wanted.
        let scale = data_group.size() as f64 / tokens[0];
        let mut total = 0.0;
        for (number, micro_batch) in micro_batches.iter().enumerate() {
            let turn = match number + 1 == micro_batches.len() {
                true => StepPart::Last,
                false => StepPart::More,
            };
            let micro_batch = &self.dropout_numbers(micro_batch);
            let batch = TokenBatch::new(micro_batch, self.config.seed, self.iteration, &self.device);
            let mask = micro_batch.loss_mask.as_deref();
            let device = &self.device;
            let mut losses = Vec::new();
            self.ddp.backward(turn, |model| {
                let token_losses = model.token_losses(batch);
                losses = host_losses(token_losses.clone().inner());
                let counted = match mask {
                    None => token_losses,
                    Some(mask) => {
                        let dtype = token_losses.dtype();
                        token_losses * Tensor::from_data(mask, (device, dtype))
                    }
                };
                counted.sum().mul_scalar(scale)
            })?;
            total += masked_sum(&losses, mask).0;
        }
        Ok((total, tokens[0]))
    }

    /// Refuses tokens that the model does not know: on a sharded vocabulary they would pass for zeros.
    fn check_tokens(&self, micro_batch: &MicroBatch) -> Result<(), TrainingError> {
        let vocab_size = self.ddp.module().vocab_size();
        let is_known = |token: &&i32| usize::try_from(**token).is_ok_and(|token| token < vocab_size);
        let mut all = micro_batch.tokens.iter().chain(&micro_batch.targets);
        match all.find(|token| !is_known(token)) {
            None => Ok(()),
            Some(&token) => Err(TrainingError::UnknownToken { token, vocab_size }),
        }
    }

    /// The micro-batch itself, unless the fault is planted that numbers samples within their rank.
    fn dropout_numbers<'a>(&self, micro_batch: &'a MicroBatch) -> Cow<'a, MicroBatch> {
        let mut numbered = Cow::Borrowed(micro_batch);
        if mutants::is_active(Mutant::SharedDropoutMask) {
            let shift = (self.context.coordinates().data * self.config.micro_batch_size) as u64;
            numbered.to_mut().sample_ids.iter_mut().for_each(|id| *id -= shift);
        }
        numbered
    }

    fn update(&mut self, gradients: ReducedGradients, learning_rate: f64) -> Result<(), TrainingError> {
        let params = gradients.into_split_params(self.ddp.module(), |entry| entry.dimensions() > 1);
        let optimizers = &mut self.optimizers;
        self.ddp.update(|model| {
            optimizers
                .iter_mut()
                .zip(params)
                .fold(model, |model, (optimizer, params)| {
                    optimizer.step(learning_rate, model, params)
                })
        })?;
        Ok(())
    }

    fn check_finite(
        &self,
        what: &'static str,
        value: f64,
        gradients: Option<&ReducedGradients>,
    ) -> Result<(), TrainingError> {
        if value.is_finite() {
            return Ok(());
        }
        let parameter = match gradients.map(ReducedGradients::first_non_finite) {
            None => String::new(),
            Some(Some(name)) => format!(", first in parameter {name}"),
            Some(None) => ", though every gradient of this rank is finite".to_owned(),
        };
        Err(TrainingError::NotFinite {
            what,
            step: self.iteration + 1,
            value,
            rank: self.context.rank(),
            parameter,
        })
    }
}

/// Each token's loss in f64: sums over a batch are taken there, so that they do not depend on how it was cut.
fn host_losses<B: Backend>(losses: Tensor<B, 1>) -> Vec<f64> {
    losses.into_data().iter::<f64>().collect()
}

fn num_unmasked(micro_batch: &MicroBatch) -> f64 {
    match &micro_batch.loss_mask {
        None => micro_batch.targets.len() as f64,
        Some(mask) => mask.iter().map(|&weight| f64::from(weight)).sum(),
    }
}

/// The sum of the unmasked losses, and their number.
fn masked_sum(losses: &[f64], mask: Option<&[f32]>) -> (f64, f64) {
    match mask {
        None => (losses.iter().sum(), losses.len() as f64),
        Some(mask) => losses
            .iter()
            .zip(mask)
            .map(|(&loss, &weight)| (loss * f64::from(weight), f64::from(weight)))
            .fold((0.0, 0.0), |(sum, count), (loss, weight)| (sum + loss, count + weight)),
    }
}
