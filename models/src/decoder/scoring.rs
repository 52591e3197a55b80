//! `Decoder` as a [`ScoringStage`]: the forward pass of training, with margins next to the losses.

use burn::tensor::Tensor;
use burn_megatron::collectives::CollectiveBackend;
use burn_megatron::pipeline_parallel::StageOutput;
use burn_megatron::training::TokenBatch;

use super::Decoder;
use crate::scoring::ScoringStage;

impl<B: CollectiveBackend> ScoringStage<B> for Decoder<B> {
    fn forward_scored(&self, input: Option<Tensor<B, 2>>, batch: &TokenBatch) -> StageOutput<B, 2> {
        let (hidden, targets) = self.run_segment(&self.whole_segment(), input, batch);
        match targets {
            Some(targets) => StageOutput::Losses(self.losses_and_margins(self.normalized(hidden), targets)),
            None => StageOutput::Activation(hidden),
        }
    }
}
