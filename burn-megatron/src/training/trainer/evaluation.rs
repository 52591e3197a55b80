//! Validation by a [`Trainer`].

use burn::module::Module;

use super::Trainer;
use crate::collectives::ReduceOp;
use crate::data::MicroBatch;
use crate::data_parallel::differs_in_training;
use crate::pipeline_parallel::schedule::{ScheduleConfig, ScheduleKind};
use crate::pipeline_parallel::{PipelineError, PipelineExecutor};
use crate::training::token_losses::{LossSums, TokenLosses};
use crate::training::{LanguageModel, TokenBatch, TrainingError};

impl<M: Module + LanguageModel> Trainer<M> {
    /// Returns the mean loss over this rank's share of validation micro-batches and those of the other data-parallel
    /// ranks, without dropout.
    ///
    /// # Communication
    /// That of the model, forward, and between its stages; one all-reduce of four numbers over the data-parallel group
    /// and one over the pipeline group. Where parameters are sharded, one more of two numbers, and one all-gather per
    /// bucket of parameters and micro-batch; one per bucket alone where ranks have unequally many micro-batches, or the
    /// model has burn's dropout, batch norm or noise: then all of its parameters are whole at once. Layers of your own
    /// that ask `ad_enabled` compute as in training.
    ///
    /// # Errors
    /// When there are no micro-batches, a collective fails, or a GPU has lost work.
    pub fn evaluate(&self, micro_batches: impl IntoIterator<Item = MicroBatch>) -> Result<f64, TrainingError> {
        self.ddp.wait_for_parameters()?;
        let micro_batches: Vec<MicroBatch> = micro_batches.into_iter().collect();
        let batches: Vec<TokenBatch> = micro_batches
            .iter()
            .map(|micro_batch| TokenBatch::new(micro_batch, self.config.seed, 0))
            .collect();
        let by_segment = self.evaluates_by_segment(batches.len())?;
        // Parameters that are gathered for this go with it.
        let whole = (!by_segment).then(|| self.ddp.gathered_anew(self.ddp.module().clone()).valid());
        let mut sums = LossSums::default();
        // The share of a data-parallel rank may be empty.
        if !batches.is_empty() {
            let schedule = ScheduleConfig {
                kind: ScheduleKind::GPipe,
                num_stages: self.context.grid().pipeline_parallel_size(),
                num_chunks: self.stages.num_chunks,
                num_micro_batches: batches.len(),
            };
            let schedule = schedule.forward_only().map_err(PipelineError::from)?;
            let mut losses = TokenLosses::new(batches.len());
            let executor = PipelineExecutor::new(schedule, &self.context)?;
            let put = |number, of_tokens| losses.put(number, of_tokens);
            match &whole {
                Some(chunks) => executor.evaluate(chunks, &batches, put)?,
                None => executor.evaluate_sharded(&self.ddp, &batches, put)?,
            }
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

    /// Whether sharded parameters are gathered segment by segment: for each micro-batch of every rank, so for equally
    /// many.
    fn evaluates_by_segment(&self, num_micro_batches: usize) -> Result<bool, TrainingError> {
        if !self.ddp.has_sharded_parameters() || differs_in_training(self.ddp.module()) {
            return Ok(false);
        }
        let count = num_micro_batches as i64;
        let mut most = [count, -count];
        self.context.data_group().all_reduce(&mut most, ReduceOp::Max)?;
        Ok(most == [count, -count])
    }
}
