//! One micro-batch through one chunk: forward, segment by segment, and back.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Shape, Tensor};
use cubecl_kernels::tape::{Kept, keep};

use super::host_activations::HostActivations;
use super::segment::Segment;
use super::stage::{PipelineStage, StageOutput};
use crate::data_parallel::DistributedDataParallel;
use crate::parameters::map_once;

/// Contents of a chunk for a micro-batch between forward and backward.
pub(super) struct Pass<const D: usize> {
    segments: Vec<Held<D>>,
    /// None where the chunk ends in the loss.
    output_shape: Option<Shape>,
}

impl<const D: usize> Pass<D> {
    /// Returns the shape of the activation that was passed on, and of its gradient; `None` if the chunk ends in the
    /// loss.
    pub(super) fn output_shape(&self) -> Option<Shape> {
        self.output_shape.clone()
    }
}

/// The graph of a segment, or its input.
enum Held<const D: usize> {
    Graph(Segment<D>),
    /// The input, of which the graph will be made again; none where the segment starts the model.
    Input(Option<Kept<D>>),
}

/// A chunk with what is needed to run it for training.
pub(super) struct Chunk<'a, M, O> {
    pub(super) stages: &'a DistributedDataParallel<Vec<M>>,
    pub(super) module: &'a M,
    /// Makes the number to be differentiated of the last stage's losses.
    pub(super) objective: O,
}

impl<M, O> Chunk<'_, M, O> {
    /// Runs the chunk forward. Returns what is held for the backward pass, and the activation to pass on; `None` if the
    /// chunk ends in the loss.
    pub(super) fn forward<const D: usize>(
        &self,
        mut input: Option<Tensor<D>>,
        micro_batch: &M::MicroBatch,
    ) -> (Pass<D>, Option<Tensor<D>>)
    where
        M: Module + PipelineStage<D>,
        O: Fn(Tensor<1>) -> Tensor<1>,
    {
        let count = self.module.num_segments();
        let mut segments = Vec::with_capacity(count);
        let host = HostActivations::new();
        for segment in 0..count {
            let (num_earlier, from) = (host.num_waiting(), input.take());
            let run = || {
                if self.module.is_recomputed(segment) {
                    self.run_without_graph(segment, from, micro_batch)
                } else {
                    let (graph, output) = self.run_with_graph(segment, from, micro_batch);
                    (Held::Graph(graph), output)
                }
            };
            let (held, output) = if self.module.is_offloaded(segment) {
                host.capture(run)
            } else {
                run()
            };
            // After this segment was launched.
            host.move_first(num_earlier);
            segments.push(held);
            assert!(
                output.is_some() || segment + 1 == count,
                "segment {segment} of {count} gave losses: only the last may"
            );
            input = output;
        }
        host.move_first(host.num_waiting());
        let output_shape = input.as_ref().map(Tensor::shape);
        (Pass { segments, output_shape }, input)
    }

    /// Runs the chunk backward and returns the gradient of its input, if it had one. `gradient` is that of its output;
    /// none where the chunk ends in the loss.
    pub(super) fn backward<const D: usize>(
        &self,
        pass: Pass<D>,
        mut gradient: Option<Tensor<D>>,
        micro_batch: &M::MicroBatch,
    ) -> Option<Tensor<D>>
    where
        M: Module + PipelineStage<D>,
        O: Fn(Tensor<1>) -> Tensor<1>,
    {
        for (segment, held) in pass.segments.into_iter().enumerate().rev() {
            let graph = match held {
                Held::Graph(graph) => graph,
                Held::Input(input) => self.run_with_graph(segment, input.map(Kept::get), micro_batch).0,
            };
            gradient = graph.backward(gradient);
        }
        gradient
    }

    fn run_with_graph<const D: usize>(
        &self,
        segment: usize,
        input: Option<Tensor<D>>,
        micro_batch: &M::MicroBatch,
    ) -> (Segment<D>, Option<Tensor<D>>)
    where
        M: Module + PipelineStage<D>,
        O: Fn(Tensor<1>) -> Tensor<1>,
    {
        let hooked = self.stages.hooked(self.module.clone());
        let (input, slot) = input.map(Segment::enter).unzip();
        match hooked.forward_segment(segment, input, micro_batch) {
            StageOutput::Activation(output) => {
                let (graph, output) = Segment::leave(output, slot);
                (graph, Some(output))
            }
            StageOutput::Losses(losses) => (Segment::of_loss((self.objective)(losses), slot), None),
        }
    }

    /// Runs a segment that will be run again. Dropout is on, as the second time: only the graph is missing.
    fn run_without_graph<const D: usize>(
        &self,
        segment: usize,
        input: Option<Tensor<D>>,
        micro_batch: &M::MicroBatch,
    ) -> (Held<D>, Option<Tensor<D>>)
    where
        M: Module + PipelineStage<D>,
    {
        let output = match forward_untracked(self.stages, self.module, segment, input.clone(), micro_batch) {
            StageOutput::Activation(output) => Some(output),
            // They come from the second run.
            StageOutput::Losses(_) => None,
        };
        (Held::Input(input.map(keep)), output)
    }
}

/// Runs a segment of one of a rank's stages without a graph. Parameters that are gathered for it are freed after it.
pub(super) fn forward_untracked<M: Module + PipelineStage<D>, const D: usize>(
    stages: &DistributedDataParallel<Vec<M>>,
    module: &M,
    segment: usize,
    input: Option<Tensor<D>>,
    micro_batch: &M::MicroBatch,
) -> StageOutput<D> {
    let untracked = stages.gathered_anew(module.clone()).map(&mut Untracked);
    match untracked.forward_segment(segment, input.map(Tensor::autodiff), micro_batch) {
        StageOutput::Activation(output) => StageOutput::Activation(output.inner()),
        StageOutput::Losses(losses) => StageOutput::Losses(losses.inner()),
    }
}

/// Makes parameters untracked, and leaves other clones of them as they are.
struct Untracked;

impl ModuleMapper for Untracked {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        map_once(param, |tensor| tensor.set_require_grad(false))
    }
}
