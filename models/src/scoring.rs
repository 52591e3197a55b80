//! [`ScoringStage`], what is asked of a part of a model that is evaluated, and [`ScoredStage`], which a pipeline runs.

use burn::module::{Module, ModuleDisplay};
use burn::tensor::Tensor;
use burn_megatron::pipeline_parallel::{PipelineStage, StageOutput};
use burn_megatron::training::{LanguageModel, TokenBatch};

/// Numbers that a token has in the output of a [`ScoredStage`]: its loss and its margin.
pub const SCORES_EACH: usize = 2;

/// A model that scores each token's successor, or one of the stages that the model was cut into. Without autodiff.
pub trait ScoringStage: LanguageModel + Module + ModuleDisplay {
    /// Runs the stage, as [`PipelineStage::forward`] does, with a margin next to each loss.
    ///
    /// # Shapes
    /// - `input`: as of [`PipelineStage::forward`]
    /// - output: the activation of the next stage, or after the last one `[batch * seq * 2]`: for each token the
    ///   cross-entropy of its successor in nats, and how far the successor's score is below the highest one, 0 if it is
    ///   the most probable token
    ///
    /// # Panics
    /// When a collective fails, or the input is not what this stage takes.
    fn forward_scored(&self, input: Option<Tensor<2>>, batch: &TokenBatch) -> StageOutput<2>;
}

/// A stage whose output as the last one is its tokens' scores, [`SCORES_EACH`] for each.
#[derive(Module, Debug)]
pub struct ScoredStage<M> {
    stage: M,
}

impl<M: ScoringStage> ScoredStage<M> {
    pub fn new(stage: M) -> Self {
        Self { stage }
    }
}

impl<M: ScoringStage> PipelineStage<2> for ScoredStage<M> {
    type MicroBatch = TokenBatch;

    fn input_shape(&self, batch: &TokenBatch) -> [usize; 2] {
        self.stage.input_shape(batch)
    }

    fn forward(&self, input: Option<Tensor<2>>, batch: &TokenBatch) -> StageOutput<2> {
        self.stage.forward_scored(input, batch)
    }
}
