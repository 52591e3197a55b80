//! `Strategy`: burn-train's training loop over epochs, on every rank.

use std::fmt::Display;
use std::sync::Arc;

use burn::module::AutodiffModule;
use burn::optim::Optimizer;
use burn::optim::lr_scheduler::LrScheduler;
use burn::train::{
    InferenceStep, Learner, LearningResult, SupervisedLearningStrategy, SupervisedTrainingEventProcessor, TrainLoader,
    TrainStep, TrainingComponents, ValidLoader,
};

use super::agreement::Agreement;
use super::components::Components;
use super::epoch::Run;
use super::error::{LearnerError, unwrap_or_unwind};
use super::output::{GatherOutput, OutputGatherer};
use super::sharded::ShardedUpdate;
use crate::autodiff::TrainingBackend;
use crate::context::ParallelContext;
use crate::data_parallel::{DataParallelConfig, DistributedDataParallel};
use crate::launch::StopFlag;

/// What a `ParallelLearner` was given.
pub(super) struct Options {
    pub(super) config: DataParallelConfig,
    pub(super) stop_flag: Option<StopFlag>,
}

/// The strategy that is given to burn-train.
pub(super) struct Strategy<B: TrainingBackend, M> {
    pub(super) context: ParallelContext,
    pub(super) options: Options,
    pub(super) sharded: Option<Arc<dyn ShardedUpdate<B, M>>>,
}

/// What training ends with.
type Trained<B, LR, M, O> = (M, SupervisedTrainingEventProcessor<Components<B, LR, M, O>>);

impl<B, LR, M, O> SupervisedLearningStrategy<Components<B, LR, M, O>> for Strategy<B, M>
where
    B: TrainingBackend,
    LR: LrScheduler + 'static,
    M: TrainStep<Output: GatherOutput> + AutodiffModule<B> + Display + 'static,
    M::InnerModule: InferenceStep<Output: GatherOutput>,
    O: Optimizer<M, B> + 'static,
{
    fn train(
        &self,
        learner: Learner<Components<B, LR, M, O>>,
        train: TrainLoader<Components<B, LR, M, O>>,
        valid: ValidLoader<Components<B, LR, M, O>>,
        mut components: TrainingComponents<Components<B, LR, M, O>>,
    ) -> LearningResult<M::InnerModule> {
        if self.context.rank() > 0 {
            // Its files are being written by the first rank.
            components.summary = None;
        }
        Loop(self).train(learner, train, valid, components)
    }

    fn fit(
        &self,
        components: TrainingComponents<Components<B, LR, M, O>>,
        learner: Learner<Components<B, LR, M, O>>,
        train: TrainLoader<Components<B, LR, M, O>>,
        valid: ValidLoader<Components<B, LR, M, O>>,
        starting_epoch: usize,
    ) -> Trained<B, LR, M, O> {
        Loop(self).fit(components, learner, train, valid, starting_epoch)
    }
}

/// The same with burn-train's own frame around it: loading a checkpoint, the events of start and end, the summary.
struct Loop<'a, B: TrainingBackend, M>(&'a Strategy<B, M>);

impl<B, LR, M, O> SupervisedLearningStrategy<Components<B, LR, M, O>> for Loop<'_, B, M>
where
    B: TrainingBackend,
    LR: LrScheduler + 'static,
    M: TrainStep<Output: GatherOutput> + AutodiffModule<B> + Display + 'static,
    M::InnerModule: InferenceStep<Output: GatherOutput>,
    O: Optimizer<M, B> + 'static,
{
    fn fit(
        &self,
        components: TrainingComponents<Components<B, LR, M, O>>,
        learner: Learner<Components<B, LR, M, O>>,
        train: TrainLoader<Components<B, LR, M, O>>,
        valid: ValidLoader<Components<B, LR, M, O>>,
        starting_epoch: usize,
    ) -> Trained<B, LR, M, O> {
        unwrap_or_unwind(self.0.run(components, learner, train, valid, starting_epoch))
    }
}

impl<B: TrainingBackend, M> Strategy<B, M> {
    /// The loop over epochs, as burn-train's on one device.
    fn run<LR, O>(
        &self,
        mut components: TrainingComponents<Components<B, LR, M, O>>,
        mut learner: Learner<Components<B, LR, M, O>>,
        train: TrainLoader<Components<B, LR, M, O>>,
        valid: ValidLoader<Components<B, LR, M, O>>,
        starting_epoch: usize,
    ) -> Result<Trained<B, LR, M, O>, LearnerError>
    where
        LR: LrScheduler + 'static,
        M: TrainStep<Output: GatherOutput> + AutodiffModule<B> + Display + 'static,
        M::InnerModule: InferenceStep<Output: GatherOutput>,
        O: Optimizer<M, B> + 'static,
    {
        let device = learner.model().devices().first().cloned().unwrap_or_default();
        let (train, valid) = (train.to_device(&device), valid.to_device(&device));
        learner.fork(&device);

        let agreement = Agreement::new(
            &self.context,
            components.interrupter.clone(),
            self.options.stop_flag.clone(),
        );
        self.check_settings(&agreement, &components, starting_epoch)?;
        let wrapper = DistributedDataParallel::new(learner.model(), &self.context, self.options.config.clone())?;
        if let Some(sharded) = &self.sharded {
            sharded.bind(&wrapper)?;
        }
        let group = self.context.data_group();
        let mut run = Run {
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
            wrapper: Some(wrapper),
        };
        run.learner_takes_values();
        run.log_from(starting_epoch);

        for epoch in starting_epoch..=components.num_epochs {
            let is_interrupted = run.train_epoch(&*train, epoch, components.num_epochs)?;
            if is_interrupted {
                break;
            }
            run.valid_epoch(&*valid, epoch, components.num_epochs)?;
            run.flush_events();
            if let Some(checkpointer) = &mut components.checkpointer {
                if let Some(sharded) = &self.sharded {
                    sharded.gather_record(run.wrapper())?;
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
    fn check_settings<LR, O>(
        &self,
        agreement: &Agreement,
        components: &TrainingComponents<Components<B, LR, M, O>>,
        starting_epoch: usize,
    ) -> Result<(), LearnerError>
    where
        LR: LrScheduler + 'static,
        M: TrainStep + AutodiffModule<B> + Display + 'static,
        M::InnerModule: InferenceStep,
        O: Optimizer<M, B> + 'static,
    {
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
