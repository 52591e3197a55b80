//! Validation by a [`Trainer`].

use burn::module::AutodiffModule;

use super::Trainer;
use crate::autodiff::TrainingBackend;
use crate::data::MicroBatch;
use crate::pipeline_parallel::schedule::{ScheduleConfig, ScheduleKind};
use crate::pipeline_parallel::{PipelineError, PipelineExecutor};
use crate::training::token_losses::{LossSums, TokenLosses};
use crate::training::{LanguageModel, TokenBatch, TrainingError};

impl<B: TrainingBackend, M: AutodiffModule<B> + LanguageModel<B>> Trainer<B, M>
where
    M::InnerModule: LanguageModel<B::InnerBackend>,
{
    /// Returns the mean loss over this rank's share of validation micro-batches and those of the other data-parallel
    /// ranks, without dropout.
    ///
    /// # Communication
    /// That of the model, forward, and between its stages; one all-reduce of four numbers over the data-parallel group
    /// and one over the pipeline group.
    ///
    /// # Errors
    /// When there are no micro-batches, a collective fails, or a GPU has lost work.
    pub fn evaluate(&self, micro_batches: impl IntoIterator<Item = MicroBatch>) -> Result<f64, TrainingError> {
        self.ddp.wait_for_parameters()?;
        let chunks: Vec<M::InnerModule> = self.ddp.module().valid();
        let micro_batches: Vec<MicroBatch> = micro_batches.into_iter().collect();
        let batches: Vec<TokenBatch> = micro_batches
            .iter()
            .map(|micro_batch| TokenBatch::new(micro_batch, self.config.seed, 0))
            .collect();
        let mut sums = LossSums::default();
        // The share of a data-parallel rank may be empty.
        if !batches.is_empty() {
            let schedule = ScheduleConfig {
                kind: ScheduleKind::GPipe,
                num_stages: self.context.grid().pipeline_parallel_size(),
                num_chunks: chunks.len(),
                num_micro_batches: batches.len(),
            };
            let schedule = schedule.forward_only().map_err(PipelineError::from)?;
            let mut losses = TokenLosses::new(batches.len());
            let executor = PipelineExecutor::new(schedule, &self.context)?;
            executor.evaluate(&chunks, &batches, |number, of_tokens| losses.put(number, of_tokens))?;
            sums = losses.read(&micro_batches);
        }
        let sums = sums.over_ranks(&self.context)?;
        #[cfg(feature = "cuda")]
        crate::cuda::check_work()?;
        if sums.token_weights == 0.0 {
            return Err(TrainingError::NothingToValidate);
        }
        Ok(sums.mean())
    }
}
