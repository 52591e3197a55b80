//! [`PipelineStage`]: a part of a model, as the pipeline runs it.

use burn::tensor::Tensor;

/// Output of a stage for a micro-batch.
#[derive(Clone, Debug)]
pub enum StageOutput<const D: usize> {
    /// The activation that the next stage starts from.
    Activation(Tensor<D>),
    /// The losses of the last stage, one per token or sample, say: the run's objective makes one number of them.
    Losses(Tensor<1>),
}

/// A part of a model that is cut into consecutive stages; `D` is the number of dimensions of what they pass on.
///
/// Any burn module can be one. The same type serves as every stage, most easily as an enum or with optional fields.
pub trait PipelineStage<const D: usize> {
    /// Data of a micro-batch that every stage is given in addition to the activation: the samples for the first stage,
    /// the targets for the last.
    type MicroBatch;

    /// The shape of the activation that comes from the stage before, which may differ between micro-batches. Not asked
    /// of the first stage.
    fn input_shape(&self, micro_batch: &Self::MicroBatch) -> [usize; D];

    /// Runs the stage. `input` is none on the first stage.
    ///
    /// # Shapes
    /// - `input`: as [`input_shape`](Self::input_shape) says
    /// - output: as the next stage's [`input_shape`](Self::input_shape) says, or the losses
    fn forward(&self, input: Option<Tensor<D>>, micro_batch: &Self::MicroBatch) -> StageOutput<D>;

    /// Number of segments of the stage. Each has a graph of its own; one is enough where nothing is recomputed.
    fn num_segments(&self) -> usize {
        1
    }

    /// Returns whether a segment keeps only its input, and is run again before its backward pass. Its side effects,
    /// such as a change of a batch norm's running statistics, then happen twice.
    fn is_recomputed(&self, segment: usize) -> bool {
        let _ = segment;
        false
    }

    /// Returns whether what a segment keeps for its backward pass goes to host memory after its forward pass, and
    /// returns when the backward pass needs it: what the fused operations keep of activations, or, of a segment that is
    /// run again, its input. What burn's own operations keep stays.
    fn is_offloaded(&self, segment: usize) -> bool {
        let _ = segment;
        false
    }

    /// Runs one segment. `input` is the output of the segment before, or that of the stage.
    ///
    /// A parameter that several segments use must be declared as reused (see
    /// [`ParallelContext::declare_reused`](crate::context::ParallelContext::declare_reused)).
    fn forward_segment(
        &self,
        segment: usize,
        input: Option<Tensor<D>>,
        micro_batch: &Self::MicroBatch,
    ) -> StageOutput<D> {
        assert_eq!(segment, 0, "a stage of several segments says how each is run");
        self.forward(input, micro_batch)
    }
}

/// Runs the segments of a stage one after the other: what [`PipelineStage::forward`] is where a stage says how each is
/// run.
///
/// # Panics
/// When the stage has no segment.
pub fn forward_segments<S: PipelineStage<D>, const D: usize>(
    stage: &S,
    mut input: Option<Tensor<D>>,
    micro_batch: &S::MicroBatch,
) -> StageOutput<D> {
    for segment in 0..stage.num_segments() {
        match stage.forward_segment(segment, input.take(), micro_batch) {
            StageOutput::Activation(output) => input = Some(output),
            losses @ StageOutput::Losses(_) => return losses,
        }
    }
    StageOutput::Activation(input.expect("a stage has a segment at least"))
}
