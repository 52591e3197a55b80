//! Work of the executor on the micro-batches: training, or evaluation.

use std::cell::RefCell;
use std::collections::HashMap;

use burn::module::Module;
use burn::tensor::{Shape, Tensor};

use super::pass::{Chunk, Pass, forward_untracked};
use super::schedule::{Direction, Task};
use super::stage::{PipelineStage, StageOutput};
use crate::collectives::CollectiveError;
use crate::data_parallel::{DataParallelError, DistributedDataParallel, StepPart, watched};
use crate::random::without_dropout;

/// Carries tasks out on tensors without autodiff: what crosses between stages.
pub(super) trait Work<const D: usize> {
    /// Runs a task in a direction. `input` is the activation of the stage before or the gradient of the output; returns
    /// the activation for the next stage or the gradient for the one before.
    fn run(&mut self, direction: Direction, task: Task, input: Option<Tensor<D>>) -> Option<Tensor<D>>;

    /// The shape of what comes in for a task from a direction; none as long as it is not known: a gradient has that of
    /// the output, which has yet to be made.
    fn shape(&self, direction: Direction, task: Task) -> Option<Shape>;
}

/// Forward and backward passes of a step.
pub(super) struct Training<'a, M: PipelineStage<D>, O, const D: usize> {
    pub(super) stages: &'a mut DistributedDataParallel<Vec<M>>,
    pub(super) micro_batches: &'a [M::MicroBatch],
    pub(super) objective: O,
    /// `true` if the tensor-parallel ranks compare what they are given for the first task.
    pub(super) is_compared: bool,
    /// Error if that was not the same.
    pub(super) is_same: Result<(), DataParallelError>,
    /// The micro-batch that goes backward through each chunk last.
    pub(super) last_backward: Vec<Option<usize>>,
    /// Micro-batches that have gone forward and not yet backward.
    pub(super) passes: HashMap<Task, Pass<D>>,
    /// Value of the objective for each micro-batch, on the last stage.
    pub(super) values: RefCell<Vec<Option<Tensor<1>>>>,
}

impl<M, O, const D: usize> Work<D> for Training<'_, M, O, D>
where
    M: Module + PipelineStage<D>,
    O: Fn(usize, Tensor<1>) -> Tensor<1>,
{
    fn run(&mut self, direction: Direction, task: Task, input: Option<Tensor<D>>) -> Option<Tensor<D>> {
        let pass = match direction {
            Direction::Forward => None,
            Direction::Backward => {
                let is_last = self.last_backward[task.chunk] == Some(task.micro_batch);
                self.stages
                    .set_step_part(if is_last { StepPart::Last } else { StepPart::More });
                Some(
                    self.passes
                        .remove(&task)
                        .expect("a checked schedule goes forward first"),
                )
            }
        };
        let stages = &*self.stages;
        let chunk = Chunk {
            stages,
            module: &stages.module_in_flight()[task.chunk],
            objective: |losses| {
                let value = (self.objective)(task.micro_batch, losses);
                self.values.borrow_mut()[task.micro_batch] = Some(value.clone().inner());
                value
            },
        };
        let micro_batch = &self.micro_batches[task.micro_batch];
        match pass {
            Some(pass) => {
                let gradient = chunk.backward(pass, input, micro_batch);
                stages.end_pass();
                gradient
            }
            None => {
                let is_compared = std::mem::take(&mut self.is_compared);
                let ((pass, output), is_same) = watched(is_compared, || chunk.forward(input, micro_batch));
                self.passes.insert(task, pass);
                if is_compared {
                    let value = self.values.borrow()[task.micro_batch].clone();
                    let losses = || value.map_or(Ok(()), |value| stages.compare_losses(value));
                    self.is_same = is_same.and_then(|()| losses());
                }
                output
            }
        }
    }

    fn shape(&self, direction: Direction, task: Task) -> Option<Shape> {
        match direction {
            Direction::Forward => {
                let chunk = &self.stages.module_in_flight()[task.chunk];
                Some(chunk.input_shape(&self.micro_batches[task.micro_batch]).into())
            }
            Direction::Backward => self.passes.get(&task)?.output_shape(),
        }
    }
}

/// Forward passes without autodiff.
pub(super) struct Evaluation<'a, M, T, L> {
    pub(super) stages: &'a [M],
    pub(super) micro_batches: &'a [T],
    pub(super) losses: L,
}

impl<M, L, const D: usize> Work<D> for Evaluation<'_, M, M::MicroBatch, L>
where
    M: Module + PipelineStage<D>,
    L: FnMut(usize, Tensor<1>),
{
    fn run(&mut self, direction: Direction, task: Task, input: Option<Tensor<D>>) -> Option<Tensor<D>> {
        assert_eq!(direction, Direction::Forward, "an evaluation goes forward only");
        let (stage, micro_batch) = (&self.stages[task.chunk], &self.micro_batches[task.micro_batch]);
        match stage.forward(input, micro_batch) {
            StageOutput::Activation(output) => Some(output),
            StageOutput::Losses(losses) => {
                (self.losses)(task.micro_batch, losses);
                None
            }
        }
    }

    fn shape(&self, _direction: Direction, task: Task) -> Option<Shape> {
        let shape = self.stages[task.chunk].input_shape(&self.micro_batches[task.micro_batch]);
        Some(shape.into())
    }
}

/// Forward passes of a model whose parameters are sharded: those of a segment are whole at a time.
pub(super) struct ShardedEvaluation<'a, M: PipelineStage<D>, L, const D: usize> {
    pub(super) stages: &'a DistributedDataParallel<Vec<M>>,
    pub(super) micro_batches: &'a [M::MicroBatch],
    pub(super) losses: L,
    /// Error if what was gathered could not be freed.
    pub(super) is_free: Result<(), CollectiveError>,
}

impl<M, L, const D: usize> Work<D> for ShardedEvaluation<'_, M, L, D>
where
    M: Module + PipelineStage<D>,
    L: FnMut(usize, Tensor<1>),
{
    fn run(&mut self, direction: Direction, task: Task, mut input: Option<Tensor<D>>) -> Option<Tensor<D>> {
        assert_eq!(direction, Direction::Forward, "an evaluation goes forward only");
        let (module, micro_batch) = (
            &self.stages.module_in_flight()[task.chunk],
            &self.micro_batches[task.micro_batch],
        );
        for segment in 0..module.num_segments() {
            match without_dropout(|| forward_untracked(self.stages, module, segment, input.take(), micro_batch)) {
                StageOutput::Activation(output) => input = Some(output),
                StageOutput::Losses(losses) => (self.losses)(task.micro_batch, losses),
            }
        }
        if self.is_free.is_ok() {
            self.is_free = self.stages.free_gathered();
        }
        input
    }

    fn shape(&self, _direction: Direction, task: Task) -> Option<Shape> {
        let chunk = &self.stages.module_in_flight()[task.chunk];
        Some(chunk.input_shape(&self.micro_batches[task.micro_batch]).into())
    }
}
