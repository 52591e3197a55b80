//! [`PipelineExecutor`]: carries one rank's list of actions out.
//!
//! The one place where schedules meet tensors. What the schedule allows at a channel capacity of zero is allowed here
//! too, and more: after the first run sends do not block, and receives are posted one task before they are needed, so
//! that transfers overlap with what is computed.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use burn::module::Module;
use burn::tensor::{DType, Device, Shape, Tensor};

use super::boundary::Boundary;
use super::error::PipelineError;
use super::schedule::{Action, Direction, Message, Schedule, Task};
use super::stage::PipelineStage;
use super::timeline::{Activity, Timeline, TimelineLabel};
use super::traffic::{Ends, Posting, Traffic};
use super::work::{Evaluation, ShardedEvaluation, Training, Work};
use crate::collectives::{catch_collective_error, has_device_memory};
use crate::context::ParallelContext;
use crate::data_parallel::{DistributedDataParallel, has_foreign_dropout};
use crate::parameters::{ParameterEntry, device_of, list_parameters};

/// Runs a schedule on this rank's stage.
#[derive(Clone, Debug)]
pub struct PipelineExecutor {
    schedule: Schedule,
    context: ParallelContext,
    boundary: Boundary,
    timeline: Timeline,
    /// `true` once the stage has been found free of what cannot be recomputed.
    is_examined: Cell<bool>,
    /// `true` once a step has been trained, or evaluated: what they use is loaded.
    has_trained: Cell<bool>,
    has_evaluated: Cell<bool>,
}

impl PipelineExecutor {
    /// Returns the executor of a schedule, which is checked first.
    ///
    /// # Communication
    /// One all-gather of one number over the pipeline group: all stages must have the same schedule.
    ///
    /// # Errors
    /// When the schedule is wrong, not for this pipeline, or not that of the other stages.
    pub fn new(schedule: Schedule, context: &ParallelContext) -> Result<Self, PipelineError> {
        schedule.check(0)?;
        let ranks = context.pipeline_group().size();
        if schedule.num_stages() != ranks {
            return Err(PipelineError::Stages {
                rank: context.rank(),
                scheduled: schedule.num_stages(),
                ranks,
            });
        }
        check_agreement(&schedule, context)?;
        Ok(Self {
            schedule,
            context: context.clone(),
            boundary: Boundary::new(context),
            timeline: Timeline::default(),
            is_examined: Cell::new(false),
            has_trained: Cell::new(false),
            has_evaluated: Cell::new(false),
        })
    }

    /// Returns the executor with a timeline to record to.
    pub fn with_timeline(mut self, timeline: &Timeline) -> Self {
        self.timeline = timeline.clone();
        self
    }

    /// The schedule.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Runs all micro-batches of a step forward and backward; the gradients are those of the wrapped chunks. Returns
    /// the value of `objective` for each micro-batch on the last stage, and nothing elsewhere.
    ///
    /// `objective` gets the number of a micro-batch and its losses, on the last stage only, and returns what is to be
    /// differentiated, one element: the mean over this rank's part of the step, divided by the number of micro-batches.
    ///
    /// # Communication
    /// That of the chunks; per micro-batch and chunk an activation from the stage before and its gradient back to it;
    /// the reduction of gradients, and the comparison of inputs, as [`DistributedDataParallel::backward`].
    ///
    /// # Errors
    /// When the schedule is not for these chunks and micro-batches, when a collective fails, or when tensor-parallel
    /// ranks were given different samples: the step is lost.
    pub fn train<M, const D: usize>(
        &self,
        stages: &mut DistributedDataParallel<Vec<M>>,
        micro_batches: &[M::MicroBatch],
        objective: impl Fn(usize, Tensor<1>) -> Tensor<1>,
    ) -> Result<Vec<Tensor<1>>, PipelineError>
    where
        M: Module + PipelineStage<D>,
    {
        self.check_sizes(stages.module_in_flight().len(), micro_batches.len())?;
        self.examine::<M, D>(stages.module_in_flight())?;
        stages.begin()?;
        let kind = kind_of_wrapped(stages);
        let mut last_backward = vec![None; self.schedule.num_chunks];
        for action in self.actions() {
            if let Action::Backward(task) = action {
                last_backward[task.chunk] = Some(task.micro_batch);
            }
        }
        let is_compared = stages.takes_comparison();
        let mut work = Training {
            stages,
            is_compared,
            is_same: Ok(()),
            micro_batches,
            objective,
            last_backward,
            passes: HashMap::new(),
            values: RefCell::new(vec![None; micro_batches.len()]),
        };
        let posting = posting_after(&self.has_trained, &kind.1);
        let done = catch_collective_error(|| self.run(&mut work, kind, posting));
        let done = done.map_err(PipelineError::from).flatten();
        let done = work.is_same.map_err(PipelineError::from).and(done);
        let values = work.values.into_inner().into_iter().flatten().collect();
        match done {
            Ok(()) => {
                self.has_trained.set(true);
                stages.launch();
                Ok(values)
            }
            Err(error) => {
                stages.forget_step();
                Err(error)
            }
        }
    }

    /// Runs all micro-batches forward with the chunks of a model without autodiff; calls `losses` on the last stage
    /// with the number of each micro-batch and its losses.
    ///
    /// # Communication
    /// That of the chunks; per micro-batch and chunk an activation from the stage before.
    ///
    /// # Errors
    /// As [`train`](Self::train).
    pub fn evaluate<M, const D: usize>(
        &self,
        stages: &Vec<M>,
        micro_batches: &[M::MicroBatch],
        losses: impl FnMut(usize, Tensor<1>),
    ) -> Result<(), PipelineError>
    where
        M: Module + PipelineStage<D>,
    {
        self.check_sizes(stages.len(), micro_batches.len())?;
        let kind = kind_of(stages);
        let mut work = Evaluation {
            stages,
            micro_batches,
            losses,
        };
        self.run_evaluation(&mut work, kind)
    }

    /// Evaluates as [`evaluate`](Self::evaluate) by the modules with autodiff of a wrapped model whose parameters are
    /// sharded: those of one segment are gathered at a time. [`Dropout`](crate::random::Dropout) is off; what is
    /// burn's, such as its own dropout and batch norm, and layers of your own that ask for a device's autodiff, compute
    /// as in training.
    ///
    /// # Communication
    /// In addition, one all-gather per bucket of a segment's parameters: the data-parallel ranks evaluate equally many
    /// micro-batches.
    ///
    /// # Errors
    /// As [`train`](Self::train).
    pub fn evaluate_sharded<M, const D: usize>(
        &self,
        stages: &DistributedDataParallel<Vec<M>>,
        micro_batches: &[M::MicroBatch],
        losses: impl FnMut(usize, Tensor<1>),
    ) -> Result<(), PipelineError>
    where
        M: Module + PipelineStage<D>,
    {
        self.check_sizes(stages.module_in_flight().len(), micro_batches.len())?;
        let mut work = ShardedEvaluation {
            stages,
            micro_batches,
            losses,
            is_free: Ok(()),
        };
        self.run_evaluation(&mut work, kind_of_wrapped(stages))?;
        Ok(work.is_free?)
    }

    fn run_evaluation<const D: usize>(
        &self,
        work: &mut impl Work<D>,
        kind: (DType, Device),
    ) -> Result<(), PipelineError> {
        let posting = posting_after(&self.has_evaluated, &kind.1);
        if posting == Posting::InPlace {
            self.context.wait_for_gpu_calls(true);
        }
        let done = catch_collective_error(|| self.run(work, kind, posting));
        if posting == Posting::InPlace {
            self.context.wait_for_gpu_calls(false);
        }
        done??;
        self.has_evaluated.set(true);
        Ok(())
    }

    /// Refuses, the first time, burn's dropout in a stage that is recomputed.
    fn examine<M, const D: usize>(&self, chunks: &[M]) -> Result<(), PipelineError>
    where
        M: Module + PipelineStage<D>,
    {
        let recomputes = |chunk: &M| (0..chunk.num_segments()).any(|segment| chunk.is_recomputed(segment));
        if self.is_examined.replace(true) {
            return Ok(());
        }
        if chunks
            .iter()
            .any(|chunk| recomputes(chunk) && has_foreign_dropout(chunk))
        {
            Err(PipelineError::ForeignDropout {
                rank: self.context.rank(),
            })
        } else {
            Ok(())
        }
    }

    fn check_sizes(&self, chunks: usize, micro_batches: usize) -> Result<(), PipelineError> {
        let rank = self.context.rank();
        if chunks != self.schedule.num_chunks {
            return Err(PipelineError::Chunks {
                rank,
                scheduled: self.schedule.num_chunks,
                given: chunks,
            });
        }
        if micro_batches != self.schedule.num_micro_batches {
            return Err(PipelineError::MicroBatches {
                rank,
                scheduled: self.schedule.num_micro_batches,
                given: micro_batches,
            });
        }
        Ok(())
    }

    fn actions(&self) -> &[Action] {
        &self.schedule.stages[self.context.coordinates().pipeline]
    }

    fn run<const D: usize>(
        &self,
        work: &mut impl Work<D>,
        (dtype, device): (DType, Device),
        posting: Posting,
    ) -> Result<(), PipelineError> {
        let ends = Ends {
            boundary: &self.boundary,
            timeline: &self.timeline,
            dtype,
            device,
            posting,
        };
        let mut traffic = Traffic::new(self.actions(), ends);
        for action in self.actions() {
            traffic.reap()?;
            match action {
                Action::Forward(task) => self.compute(Direction::Forward, *task, work, &mut traffic)?,
                Action::Backward(task) => self.compute(Direction::Backward, *task, work, &mut traffic)?,
                transfer => traffic.exchange(transfer, |message| self.shape(work, message))?,
            }
            if self.schedule.is_forward_only {
                traffic.wait_for_sends(2 * self.schedule.num_stages())?;
            }
        }
        Ok(traffic.finish()?)
    }

    /// The shape of what a message brings, if it is known.
    fn shape<const D: usize>(&self, work: &impl Work<D>, message: &Message) -> Option<Shape> {
        let consumer = message.to().expect("a checked schedule");
        let task = Task {
            micro_batch: message.micro_batch,
            chunk: consumer / self.schedule.num_stages(),
        };
        work.shape(message.direction, task)
    }

    /// Runs a task on what has come in for it, and leaves what it makes to be sent.
    fn compute<const D: usize>(
        &self,
        direction: Direction,
        task: Task,
        work: &mut impl Work<D>,
        traffic: &mut Traffic<'_, D>,
    ) -> Result<(), PipelineError> {
        traffic.post_ahead(|message| self.shape(work, message));
        let here = self
            .schedule
            .virtual_stage(self.context.coordinates().pipeline, task.chunk);
        let (activity, maker) = match direction {
            Direction::Forward => (Activity::Forward, here.checked_sub(1)),
            Direction::Backward => (Activity::Backward, Some(here + 1)),
        };
        let input = match maker {
            Some(maker) => traffic.take((direction, task.micro_batch, maker))?,
            None => None,
        };
        let label = TimelineLabel {
            micro_batch: Some(task.micro_batch),
            chunk: Some(task.chunk),
            ..TimelineLabel::default()
        };
        let output = self
            .timeline
            .measure(activity, label, || work.run(direction, task, input));
        let is_last = here + 1 == self.schedule.num_stages() * self.schedule.num_chunks;
        assert!(
            direction == Direction::Backward || output.is_none() == is_last,
            "virtual stage {here} of {} must give {}",
            self.schedule.num_stages() * self.schedule.num_chunks,
            if is_last {
                "losses, and gave an activation"
            } else {
                "an activation, and gave losses"
            }
        );
        // None where the model ends: the losses, and the gradient of the samples.
        if let Some(output) = output {
            traffic.put((direction, task.micro_batch, here), output);
        }
        Ok(())
    }
}

/// Returns how receives are posted: in the first run on a device nothing may be in flight while what it uses is loaded.
fn posting_after(has_run: &Cell<bool>, device: &Device) -> Posting {
    if has_run.get() || !has_device_memory(device) {
        Posting::OneTaskAhead
    } else {
        Posting::InPlace
    }
}

/// Compares the schedule over the stages: lists that do not belong together could pair messages of equal length.
fn check_agreement(schedule: &Schedule, context: &ParallelContext) -> Result<(), PipelineError> {
    let group = context.pipeline_group();
    let mut hasher = DefaultHasher::new();
    schedule.hash(&mut hasher);
    let mut hashes = vec![0; group.size()];
    group.all_gather(&[hasher.finish() as i64], &mut hashes)?;
    match hashes.iter().position(|&hash| hash != hashes[0]) {
        None => Ok(()),
        Some(other) => Err(PipelineError::SchedulesDiffer {
            rank: context.rank(),
            here: format!(
                "{} chunks and {} micro-batches",
                schedule.num_chunks, schedule.num_micro_batches
            ),
            first: group.ranks()[0],
            other: group.ranks()[other],
        }),
    }
}

/// The element type and the device of what passes between stages: those of the parameters, without a graph.
fn kind_of<M: Module>(module: &M) -> (DType, Device) {
    let device = device_of(module).inner();
    (dtype_of(&list_parameters(module), &device), device)
}

fn kind_of_wrapped<M: Module>(stages: &DistributedDataParallel<Vec<M>>) -> (DType, Device) {
    let device = stages.inner_device();
    (dtype_of(stages.parameters(), &device), device)
}

fn dtype_of(parameters: &[ParameterEntry], device: &Device) -> DType {
    let default = device.settings().float_dtype.into();
    parameters.first().map_or(default, |parameter| parameter.dtype)
}

#[cfg(test)]
mod tests;
