//! One epoch of training or validation, on every rank.

use std::fmt::Display;
use std::sync::Arc;

use burn::data::dataloader::{DataLoader, Progress};
use burn::module::AutodiffModule;
use burn::optim::lr_scheduler::LrScheduler;
use burn::optim::{GradientsParams, Optimizer};
use burn::train::{
    EventProcessorTraining, InferenceStep, Learner, LearnerEvent, SupervisedTrainingEventProcessor, TrainOutput,
    TrainStep, TrainingItem,
};

use super::agreement::{Agreement, Shares};
use super::components::Components;
use super::error::LearnerError;
use super::output::{GatherOutput, OutputGatherer};
use super::sharded::ShardedUpdate;
use crate::autodiff::TrainingBackend;
use crate::context::ParallelContext;
use crate::data_parallel::{DistributedDataParallel, StepPart};

/// A running training.
pub(super) struct Run<B, LR, M, O>
where
    B: TrainingBackend,
    LR: LrScheduler + 'static,
    M: TrainStep + AutodiffModule<B> + Display + 'static,
    M::InnerModule: InferenceStep,
    O: Optimizer<M, B> + 'static,
{
    pub(super) agreement: Agreement,
    pub(super) context: ParallelContext,
    pub(super) learner: Learner<Components<B, LR, M, O>>,
    /// Holds the same module as the learner. There is always one, except inside `optimize`.
    pub(super) wrapper: Option<DistributedDataParallel<B, M>>,
    pub(super) sharded: Option<Arc<dyn ShardedUpdate<B, M>>>,
    pub(super) processor: SupervisedTrainingEventProcessor<Components<B, LR, M, O>>,
    pub(super) train_outputs: OutputGatherer,
    pub(super) valid_outputs: OutputGatherer,
    /// Batches of a step.
    pub(super) accumulation: usize,
    pub(super) data_rank: usize,
    /// Whether this is the rank that reports.
    pub(super) is_first: bool,
    /// Whether there are values that forward passes change.
    pub(super) has_buffers: bool,
}

impl<B, LR, M, O> Run<B, LR, M, O>
where
    B: TrainingBackend,
    LR: LrScheduler + 'static,
    M: TrainStep<Output: GatherOutput> + AutodiffModule<B> + Display + 'static,
    M::InnerModule: InferenceStep<Output: GatherOutput>,
    O: Optimizer<M, B> + 'static,
{
    /// Makes burn-train's logs begin with an epoch: it counts from 1, in a resumed run too, until it hears of an
    /// epoch's end.
    ///
    /// The event has no other effect: metrics that hold nothing are cleared, and loggers see an epoch without entries.
    pub(super) fn log_from(&mut self, epoch: usize) {
        if self.is_first && epoch > 1 {
            self.processor.process_train(LearnerEvent::EndEpoch(epoch - 1));
            self.processor.process_valid(LearnerEvent::EndEpoch(epoch - 1));
        }
    }

    /// Trains on every batch of the loader; returns whether the training was interrupted.
    pub(super) fn train_epoch(
        &mut self,
        loader: &dyn DataLoader<B, M::Input>,
        epoch: usize,
        num_epochs: usize,
    ) -> Result<bool, LearnerError> {
        let mut batches = Batches::new(loader, epoch, num_epochs);
        // Batches of the step so far.
        let mut accumulated = 0;
        let is_interrupted = loop {
            let (input, shares) = match batches.next(&self.agreement)? {
                Next::Batch(input, shares) => (input, shares),
                Next::End => break false,
                Next::Interrupted => break true,
            };
            self.learner.lr_step();
            accumulated += 1;
            let part = if accumulated == self.accumulation {
                StepPart::Last
            } else {
                StepPart::More
            };
            // What the dropout of a converted module asks for.
            self.context.set_step(epoch as u64, shares.places(self.data_rank));
            let output = self.pass(input, part, &shares)?;
            if part == StepPart::Last {
                self.optimize()?;
                accumulated = 0;
            }
            let output = self.train_outputs.gather(output, &shares, batches.number)?;
            if let Some(output) = output.filter(|_| self.is_first) {
                let item = batches.item(output, shares, Some(self.learner.lr_current()));
                self.processor.process_train(LearnerEvent::ProcessedItem(item));
            }
        };
        if accumulated > 0 {
            // As burn-train, which leaves the rest of an epoch's accumulated gradients unused.
            self.wrapper().forget_step();
        }
        if self.is_first {
            self.processor.process_train(LearnerEvent::EndEpoch(epoch));
        }
        Ok(is_interrupted)
    }

    /// Validates on every batch of the loader.
    pub(super) fn valid_epoch(
        &mut self,
        loader: &dyn DataLoader<B::InnerBackend, <M::InnerModule as InferenceStep>::Input>,
        epoch: usize,
        num_epochs: usize,
    ) -> Result<(), LearnerError> {
        if self.has_buffers {
            // All ranks evaluate what the first one saves.
            self.wrapper().begin()?;
            self.learner_takes_values();
        }
        let model = self.learner.model().valid();
        let mut batches = Batches::new(loader, epoch, num_epochs);
        while let Next::Batch(input, shares) = batches.next(&self.agreement)? {
            let output = input.map(|input| model.step(input));
            let output = self.valid_outputs.gather(output, &shares, batches.number)?;
            if let Some(output) = output.filter(|_| self.is_first) {
                let item = batches.item(output, shares, None);
                self.processor.process_valid(LearnerEvent::ProcessedItem(item));
            }
        }
        if self.is_first {
            self.processor.process_valid(LearnerEvent::EndEpoch(epoch));
        }
        Ok(())
    }

    /// Runs the model's step on this rank's share of a batch.
    fn pass(
        &mut self,
        input: Option<M::Input>,
        part: StepPart,
        shares: &Shares,
    ) -> Result<Option<M::Output>, LearnerError> {
        let Some(input) = input else {
            self.wrapper().pass_without_samples(part)?;
            return Ok(None);
        };
        let weight = shares.weight(self.data_rank);
        let TrainOutput { grads, item } = self.wrapper().pass(part, weight, |model| model.step(input))?;
        if grads.is_empty() {
            Ok(Some(item))
        } else {
            Err(LearnerError::ForeignGradients { count: grads.len() })
        }
    }

    /// Updates the model with the step's gradients, through the learner, which holds the optimizer.
    fn optimize(&mut self) -> Result<(), LearnerError> {
        if self.has_buffers {
            self.learner_takes_values();
        }
        let gradients = self.wrapper().gradients()?;
        match self.sharded.clone() {
            None => {
                let params = gradients.into_params::<B, M>(self.wrapper().module());
                let learning_rate = self.learner.lr_current();
                self.wrapper().count_step(learning_rate);
                self.learner.optimizer_step(params);
            }
            Some(sharded) => {
                let wrapper = self.wrapper.take().expect("absent inside `optimize` only");
                sharded.hand_over(wrapper, gradients);
                self.learner.optimizer_step(GradientsParams::new());
                self.wrapper = Some(sharded.take_back()?);
            }
        }
        let model = self.learner.model();
        Ok(self.wrapper().update(|_| model)?)
    }

    /// The wrapped module.
    pub(super) fn wrapper(&mut self) -> &mut DistributedDataParallel<B, M> {
        self.wrapper.as_mut().expect("absent inside `optimize` only")
    }

    /// Gives the learner the values of the wrapped module: those of the first rank, and what forward passes have
    /// changed.
    pub(super) fn learner_takes_values(&mut self) {
        let record = self.wrapper().module().clone().into_record();
        self.learner.load_model(record);
    }

    /// Waits until all events have been processed.
    pub(super) fn flush_events(&mut self) {
        flush::<B, LR, M, O>(&mut self.processor);
    }
}

/// The batches of an epoch, on which the ranks agree one by one.
struct Batches<'a, T> {
    iterator: Box<dyn burn::data::dataloader::DataLoaderIterator<T> + 'a>,
    /// Of epochs.
    global_progress: Progress,
    /// Of the batch at hand, from 1.
    number: usize,
    /// Samples of this rank so far.
    processed: usize,
}

/// What comes next.
enum Next<T> {
    /// A batch, of which this rank may have no share.
    Batch(Option<T>, Shares),
    /// The epoch is over.
    End,
    /// The training is.
    Interrupted,
}

impl<'a, T> Batches<'a, T> {
    fn new<B: burn::tensor::backend::Backend>(
        loader: &'a dyn DataLoader<B, T>,
        epoch: usize,
        num_epochs: usize,
    ) -> Self {
        Self {
            iterator: loader.iter(),
            global_progress: Progress::new(epoch, num_epochs),
            number: 0,
            processed: 0,
        }
    }

    /// Loads the next batch, and agrees on it.
    fn next(&mut self, agreement: &Agreement) -> Result<Next<T>, LearnerError> {
        let input = self.iterator.next();
        let progress = self.iterator.progress();
        let samples = match &input {
            Some(_) => progress.items_processed.saturating_sub(self.processed).max(1),
            None => 0,
        };
        self.processed = progress.items_processed;
        let shares = agreement.batch(samples, &progress)?;
        if let Some(rank) = shares.asked_to_stop {
            agreement.interrupt(rank);
            // As burn-train, which asks after each batch.
            if self.number > 0 || shares.is_end() {
                return Ok(Next::Interrupted);
            }
        }
        if shares.is_end() {
            return Ok(Next::End);
        }
        self.number += 1;
        Ok(Next::Batch(input, shares))
    }

    fn item<O>(&self, output: O, shares: Shares, learning_rate: Option<f64>) -> TrainingItem<O> {
        TrainingItem::new(
            output,
            shares.progress,
            self.global_progress.clone(),
            Some(self.number),
            learning_rate,
        )
    }
}

/// Waits until burn-train's thread has processed all events, so that what is asked of its store afterwards is known.
///
/// Its channel holds one event: when a second event without effect has been put in, the first has been taken out, which
/// is after all before it have been processed.
pub(super) fn flush<B, LR, M, O>(processor: &mut SupervisedTrainingEventProcessor<Components<B, LR, M, O>>)
where
    B: TrainingBackend,
    LR: LrScheduler + 'static,
    M: TrainStep + AutodiffModule<B> + Display + 'static,
    M::InnerModule: InferenceStep,
    O: Optimizer<M, B> + 'static,
{
    processor.process_valid(LearnerEvent::Start);
    processor.process_valid(LearnerEvent::Start);
}
