//! `Strategy`: burn-train's training loop over epochs, on every rank.

use std::sync::Arc;

use burn::tensor::Device;
use burn::train::{
    EventProcessorTraining, InferenceStep, Learner, LearnerEvent, LearnerModel, SupervisedLearningStrategy,
    SupervisedTrainingEventProcessor, TrainLoader, TrainStep, TrainingComponents, ValidLoader,
};

use super::agreement::Agreement;
use super::epoch::Run;
use super::error::{LearnerError, unwrap_or_unwind};
use super::output::{GatherOutput, OutputGatherer};
use super::sharded::ShardedUpdate;
use crate::context::ParallelContext;
use crate::data_parallel::{DataParallelConfig, DistributedDataParallel};
use crate::launch::StopFlag;
use crate::parameters::device_of;

/// Settings of a `ParallelLearner`.
pub(super) struct Options {
    pub(super) config: DataParallelConfig,
    pub(super) stop_flag: Option<StopFlag>,
}

/// The strategy that is given to burn-train.
pub(super) struct Strategy<M> {
    pub(super) context: ParallelContext,
    pub(super) options: Options,
    pub(super) sharded: Option<Arc<dyn ShardedUpdate<M>>>,
}

/// A trained model, and what has processed the events of its training.
type Trained<M> = (M, SupervisedTrainingEventProcessor<M>);

impl<M> SupervisedLearningStrategy<M> for Strategy<M>
where
    M: LearnerModel + TrainStep<Output: GatherOutput> + InferenceStep<Output: GatherOutput>,
{
    fn fit(
        &self,
        components: TrainingComponents<M>,
        learner: Learner<M>,
        train: TrainLoader<M>,
        valid: ValidLoader<M>,
        starting_epoch: usize,
    ) -> Trained<M> {
        unwrap_or_unwind(self.run(components, learner, train, valid, starting_epoch))
    }
}

impl<M> Strategy<M>
where
    M: LearnerModel + TrainStep<Output: GatherOutput> + InferenceStep<Output: GatherOutput>,
{
    /// The loop over epochs, as burn-train's on one device.
    fn run(
        &self,
        mut components: TrainingComponents<M>,
        mut learner: Learner<M>,
        train: TrainLoader<M>,
        valid: ValidLoader<M>,
        starting_epoch: usize,
    ) -> Result<Trained<M>, LearnerError> {
        let device = trained_on(device_of(&learner.model()));
        let (train, valid) = (train.to_device(&device), valid.to_device(&device.clone().inner()));
        learner.fork(&device);

        let agreement = Agreement::new(
            &self.context,
            components.interrupter.clone(),
            self.options.stop_flag.clone(),
        );
        self.check_settings(&agreement, &components, starting_epoch)?;
        let wrapper = DistributedDataParallel::new(learner.model(), &self.context, self.options.config.clone())?;
        if let Some(sharded) = &self.sharded {
            let is_resumed = components.checkpoint.is_some() && components.checkpointer.is_some();
            sharded.bind(&wrapper, &mut learner, is_resumed)?;
        }
        let group = self.context.data_group();
        let mut run = Run {
            totals: agreement.totals([train.num_items(), valid.num_items()])?,
            agreement,
            context: self.context.clone(),
            has_buffers: wrapper.parameters().iter().any(|parameter| !parameter.requires_grad),
            is_first: self.context.rank() == 0,
            data_rank: group.rank(),
            accumulation: components.grad_accumulation.unwrap_or(1).max(1),
            sharded: self.sharded.clone(),
            train_outputs: OutputGatherer::new(group, "training"),
            valid_outputs: OutputGatherer::new(group, "validation"),
            processor: components.event_processor,
            learner,
            wrapper,
        };
        run.learner_takes_values();

        for epoch in starting_epoch..=components.num_epochs {
            if run.train_epoch(&*train, epoch)? || run.valid_epoch(&*valid, epoch)? {
                break;
            }
            run.report(|processor| processor.process_train(LearnerEvent::EndEpoch(epoch)));
            run.report(EventProcessorTraining::flush);
            if let Some(checkpointer) = &mut components.checkpointer {
                if let Some(sharded) = &self.sharded {
                    sharded.gather_record(&run.wrapper)?;
                }
                if run.is_first {
                    checkpointer.checkpoint(&run.learner, epoch, &components.event_store);
                }
            }
            let stops = run.is_first
                && components
                    .early_stopping
                    .as_mut()
                    .is_some_and(|stopping| stopping.should_stop(epoch, &components.event_store));
            if run.agreement.as_the_first_rank(stops)? {
                break;
            }
        }
        Ok((run.learner.model(), run.processor))
    }

    /// Checks that all ranks run the same training, and that its checkpoints hold the whole model.
    fn check_settings(
        &self,
        agreement: &Agreement,
        components: &TrainingComponents<M>,
        starting_epoch: usize,
    ) -> Result<(), LearnerError> {
        let accumulation = components.grad_accumulation.unwrap_or(1).max(1);
        let has_checkpointer = components.checkpointer.is_some();
        agreement.settings(
            [
                "num_epochs",
                "the epoch that training starts with",
                "grads_accumulation",
                "the number of file checkpointers",
            ],
            [
                components.num_epochs as i64,
                starting_epoch as i64,
                accumulation as i64,
                i64::from(has_checkpointer),
            ],
        )?;
        let ranks = self.context.tensor_group().size();
        if has_checkpointer && ranks > 1 {
            Err(LearnerError::TensorCheckpoint { ranks })
        } else {
            Ok(())
        }
    }
}

/// Returns the device with a graph, as burn-train does.
fn trained_on(device: Device) -> Device {
    match device.gradient_checkpointing_strategy() {
        Some(_) => device,
        None => device.autodiff(),
    }
}
