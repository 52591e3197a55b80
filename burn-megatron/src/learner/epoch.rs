//! One epoch of training or validation, on every rank.

use std::sync::Arc;

use burn::data::dataloader::{DataLoader, DataLoaderIterator};
use burn::optim::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::train::{
    EventProcessorError, EventProcessorTraining, InferenceStep, Learner, LearnerEvent, LearnerModel,
    SupervisedTrainingEventProcessor, TrainOutput, TrainStep, TrainingItem,
};

use super::agreement::{Agreement, Shares};
use super::error::LearnerError;
use super::output::{GatherOutput, OutputGatherer};
use super::sharded::ShardedUpdate;
use crate::context::ParallelContext;
use crate::data_parallel::{DistributedDataParallel, StepPart};

/// A running training.
pub(super) struct Run<M: LearnerModel> {
    pub(super) agreement: Agreement,
    pub(super) context: ParallelContext,
    pub(super) learner: Learner<M>,
    /// The same module as the learner's.
    pub(super) wrapper: DistributedDataParallel<M>,
    pub(super) sharded: Option<Arc<dyn ShardedUpdate<M>>>,
    pub(super) processor: SupervisedTrainingEventProcessor<M>,
    pub(super) train_outputs: OutputGatherer,
    pub(super) valid_outputs: OutputGatherer,
    /// The samples of an epoch of training and of one of validation, over the data-parallel ranks.
    pub(super) totals: [usize; 2],
    /// Batches of a step.
    pub(super) accumulation: usize,
    pub(super) data_rank: usize,
    /// True on the rank that reports.
    pub(super) is_first: bool,
    /// True if there are values that forward passes change.
    pub(super) has_buffers: bool,
}

impl<M> Run<M>
where
    M: LearnerModel + TrainStep<Output: GatherOutput> + InferenceStep<Output: GatherOutput>,
{
    /// Tells burn-train's processor of something, on the first rank.
    pub(super) fn report(
        &mut self,
        tell: impl FnOnce(&mut SupervisedTrainingEventProcessor<M>) -> Result<(), EventProcessorError>,
    ) {
        if self.is_first {
            self.agreement.interrupter.fail_on_error(tell(&mut self.processor));
        }
    }

    /// Trains on every batch of the loader; returns whether the training was interrupted.
    pub(super) fn train_epoch(
        &mut self,
        loader: &dyn DataLoader<<M as TrainStep>::Input>,
        epoch: usize,
    ) -> Result<bool, LearnerError> {
        let start = |total_items| LearnerEvent::StartSplit {
            epoch_number: epoch,
            total_items,
        };
        let [total, _] = self.totals;
        self.report(|processor| processor.process_train(start(total)));
        let mut batches = Batches::new(loader);
        // Batches of the step so far.
        let mut accumulated = 0;
        let is_interrupted = loop {
            let (input, shares) = match batches.next(&self.agreement)? {
                Next::Batch(input, shares) => (input, shares),
                Next::End => break false,
                Next::Interrupted => break true,
            };
            accumulated += 1;
            let part = if accumulated == self.accumulation || shares.progress.is_completed() {
                StepPart::Last
            } else {
                StepPart::More
            };
            // What the dropout of a converted module asks for.
            self.context.set_step(epoch as u64, shares.places(self.data_rank));
            let output = self.pass(input, part, &shares)?;
            if part == StepPart::Last {
                self.learner.lr_step();
                self.optimize()?;
                accumulated = 0;
            }
            let learning_rate = self.learner.lr_current();
            if let Some(output) = self.train_outputs.gather(output, &shares, batches.number)? {
                let item = batches.item(output, shares, Some(learning_rate));
                self.report(|processor| processor.process_train(LearnerEvent::ProcessedItem(item)));
            }
        };
        if accumulated > 0 {
            // Of a loader that does not count its samples, or after an interruption.
            self.wrapper.forget_step();
        }
        self.report(|processor| processor.process_train(LearnerEvent::EndSplit(epoch)));
        Ok(is_interrupted)
    }

    /// Validates on every batch of the loader; returns whether the training was interrupted.
    pub(super) fn valid_epoch(
        &mut self,
        loader: &dyn DataLoader<<M as InferenceStep>::Input>,
        epoch: usize,
    ) -> Result<bool, LearnerError> {
        if self.has_buffers {
            // All ranks evaluate what the first one saves.
            self.wrapper.begin()?;
            self.learner_takes_values();
        }
        let start = |total_items| LearnerEvent::StartSplit {
            epoch_number: epoch,
            total_items,
        };
        let [_, total] = self.totals;
        self.report(|processor| processor.process_valid(start(total)));
        let model = self.learner.model().valid();
        let mut batches = Batches::new(loader);
        let is_interrupted = loop {
            let (input, shares) = match batches.next(&self.agreement)? {
                Next::Batch(input, shares) => (input, shares),
                Next::End => break false,
                Next::Interrupted => break true,
            };
            let output = input.map(|input| InferenceStep::step(&model, input));
            if let Some(output) = self.valid_outputs.gather(output, &shares, batches.number)? {
                let item = batches.item(output, shares, None);
                self.report(|processor| processor.process_valid(LearnerEvent::ProcessedItem(item)));
            }
        };
        self.report(|processor| processor.process_valid(LearnerEvent::EndSplit(epoch)));
        Ok(is_interrupted)
    }

    /// Runs the model's step on this rank's share of a batch.
    fn pass(
        &mut self,
        input: Option<<M as TrainStep>::Input>,
        part: StepPart,
        shares: &Shares,
    ) -> Result<Option<<M as TrainStep>::Output>, LearnerError> {
        let Some(input) = input else {
            self.wrapper.pass_without_samples(part)?;
            return Ok(None);
        };
        let weight = shares.weight(self.data_rank);
        let TrainOutput { grads, item } = self
            .wrapper
            .pass(part, weight, |model| TrainStep::step(&model, input))?;
        if grads.is_empty() {
            Ok(Some(item))
        } else {
            Err(LearnerError::ForeignGradients { count: grads.len() })
        }
    }

    /// Updates the model with the step's gradients.
    fn optimize(&mut self) -> Result<(), LearnerError> {
        if self.has_buffers {
            self.learner_takes_values();
        }
        let gradients = self.wrapper.gradients()?;
        let learning_rate = self.learner.lr_current();
        if let Some(sharded) = &self.sharded {
            sharded.step(&learning_rate, &mut self.wrapper, gradients)?;
            self.learner_takes_values();
            return Ok(());
        }
        let params = gradients.into_params(self.wrapper.module());
        self.wrapper.count_step(learning_rate.base());
        self.learner.optimizer_step(params);
        let model = self.learner.model();
        Ok(self.wrapper.update(|_| model)?)
    }

    /// Gives the learner the values of the wrapped module: those of the first rank, and what forward passes have
    /// changed.
    pub(super) fn learner_takes_values(&mut self) {
        let record = self.wrapper.module().clone().into_record();
        self.learner.load_model(record);
    }
}

/// The batches of an epoch, on which the ranks agree one by one.
struct Batches<'a, T> {
    iterator: Box<dyn DataLoaderIterator<T> + 'a>,
    /// Number of the batch at hand, from 1.
    number: usize,
    /// Samples of this rank so far.
    processed: usize,
}

/// The next thing to do in an epoch.
enum Next<T> {
    /// A batch, of which this rank may have no share.
    Batch(Option<T>, Shares),
    /// The epoch is over.
    End,
    /// The training is.
    Interrupted,
}

impl<'a, T> Batches<'a, T> {
    fn new(loader: &'a dyn DataLoader<T>) -> Self {
        Self {
            iterator: loader.iter(),
            number: 0,
            processed: 0,
        }
    }

    /// Loads the next batch, and agrees on it. A batch that cannot be loaded ends the training on all ranks.
    fn next(&mut self, agreement: &Agreement) -> Result<Next<T>, LearnerError> {
        let input = match self.iterator.next() {
            Some(Err(error)) => {
                agreement.interrupter.fail(error);
                None
            }
            Some(Ok(input)) => Some(input),
            None => None,
        };
        let progress = self.iterator.progress();
        let samples = match &input {
            Some(_) => progress.items_processed.saturating_sub(self.processed).max(1),
            None => 0,
        };
        self.processed = progress.items_processed;
        let shares = agreement.batch(samples, &progress)?;
        agreement.interrupt(&shares);
        // As burn-train, which asks after each batch.
        let ends_here = self.number > 0 || shares.has_failed || shares.is_end();
        if shares.asked_to_stop.is_some() && ends_here {
            return Ok(Next::Interrupted);
        }
        if shares.is_end() {
            return Ok(Next::End);
        }
        self.number += 1;
        Ok(Next::Batch(input, shares))
    }

    fn item<O>(&self, output: O, shares: Shares, learning_rate: Option<ModuleLearningRate>) -> TrainingItem<O> {
        TrainingItem::new(output, shares.progress, Some(self.number), learning_rate)
    }
}
