//! [`Scorer`]: sequences in, their scores out, in any layout.

use std::ops::Range;

use anyhow::ensure;
use burn::tensor::Tensor;
use burn_megatron::collectives::ReduceOp;
use burn_megatron::context::ParallelContext;
use burn_megatron::data::MicroBatch;
use burn_megatron::launch::StopFlag;
use burn_megatron::pipeline_parallel::schedule::{ScheduleConfig, ScheduleKind};
use burn_megatron::pipeline_parallel::{PipelineError, PipelineExecutor};
use burn_megatron::training::TokenBatch;
use models::scoring::{SCORES_EACH, ScoredStage, ScoringStage};

use super::batches::{Batch, BatchLimits, plan};
use super::sequence::{Score, Sequence};
use crate::launching::StopReason;

/// Batches in flight for each stage of a pipeline: it is empty at the beginning and the end of each round.
const BATCHES_PER_STAGE: usize = 4;

/// Scores sequences with a model, a stage of which is on each rank.
pub(super) struct Scorer<S> {
    chunks: Vec<ScoredStage<S>>,
    context: ParallelContext,
    limits: BatchLimits,
    /// The last one, which is for its number of batches.
    executor: Option<(usize, PipelineExecutor)>,
}

/// End of scoring, on every rank.
pub(super) enum Outcome {
    /// The scores of all sequences.
    Done(Vec<Score>),
    /// It was asked to stop.
    Stopped(StopReason),
}

impl<S: ScoringStage> Scorer<S> {
    /// Takes this rank's chunks of a model with these `positions`. Batches of several sequences have at most `tokens`
    /// tokens.
    pub(super) fn new(chunks: Vec<S>, tokens: usize, positions: usize, context: &ParallelContext) -> Self {
        let multiple = if context.is_sequence_parallel() {
            context.tensor_group().size()
        } else {
            1
        };
        Self {
            chunks: chunks.into_iter().map(ScoredStage::new).collect(),
            context: context.clone(),
            limits: BatchLimits {
                tokens,
                positions,
                multiple,
            },
            executor: None,
        }
    }

    /// Scores sequences, the same on every rank, each on the ranks of one replica of the model. `progress` gets the
    /// number of those that are scored.
    ///
    /// # Communication
    /// That of the model, forward, and between its stages; after each round of a few batches two numbers for each
    /// sequence over the data-parallel and the pipeline group, and one over the world.
    ///
    /// # Errors
    /// When a rank fails or does not come in time; when a score is not finite.
    pub(super) fn run(
        &mut self,
        sequences: &[Sequence],
        stop: &StopFlag,
        mut progress: impl FnMut(usize),
    ) -> anyhow::Result<Outcome> {
        let lengths: Vec<usize> = sequences.iter().map(|sequence| sequence.inputs().len()).collect();
        let batches = plan(&lengths, &self.limits);
        let grid = self.context.grid();
        let (stages, replicas) = (grid.pipeline_parallel_size(), grid.data_parallel_size());
        let each = if stages == 1 { 1 } else { BATCHES_PER_STAGE * stages };
        let replica = self.context.data_group().rank();
        let mut scores = vec![None; sequences.len()];
        let mut done = 0;
        for round in batches.chunks(each * replicas) {
            if let Some(reason) = StopReason::agree(StopReason::of(stop), self.context.world_group())? {
                return Ok(Outcome::Stopped(reason));
            }
            let own = share(round.len(), each, replica);
            let numbers = self.round(round, own, sequences)?;
            let of_round = round.iter().flat_map(|batch| &batch.sequences);
            for (number, pair) in of_round.zip(numbers.chunks_exact(2)) {
                ensure!(
                    pair[0].is_finite(),
                    "sequence {number} of {} tokens has the log-probability {}: the model does not compute finite \
                     numbers; try another --dtype, or another checkpoint",
                    lengths[*number],
                    pair[0]
                );
                scores[*number] = Some(Score {
                    log_probability: pair[0],
                    is_greedy: pair[1] == 1.0,
                });
                done += 1;
            }
            progress(done);
        }
        let scores = scores.into_iter().flatten().collect::<Vec<_>>();
        assert_eq!(scores.len(), sequences.len(), "a batch for each sequence");
        Ok(Outcome::Done(scores))
    }

    /// Computes a round, this rank's replica the batches `own` of it. Returns log-probability and greediness of each
    /// sequence of all its batches, in their order.
    fn round(&mut self, round: &[Batch], own: Range<usize>, sequences: &[Sequence]) -> anyhow::Result<Vec<f64>> {
        let before: usize = round[..own.start].iter().map(|batch| batch.sequences.len()).sum();
        let all: usize = round.iter().map(|batch| batch.sequences.len()).sum();
        let mut numbers = vec![0.0; 2 * all];
        let mut place = 2 * before;
        for (batch, scores) in round[own.clone()].iter().zip(self.forward(&round[own], sequences)?) {
            for (row, number) in batch.sequences.iter().enumerate() {
                let row = &scores[row * batch.seq_length * SCORES_EACH..];
                numbers[place..place + 2].copy_from_slice(&sum(row, &sequences[*number]));
                place += 2;
            }
        }
        // Zeros of all but one: sums are exact.
        self.context.data_group().all_reduce(&mut numbers, ReduceOp::Sum)?;
        self.context.pipeline_group().all_reduce(&mut numbers, ReduceOp::Sum)?;
        Ok(numbers)
    }

    /// The scores of each token of some batches, on the last stage; nothing on others.
    fn forward(&mut self, batches: &[Batch], sequences: &[Sequence]) -> anyhow::Result<Vec<Vec<f64>>> {
        if batches.is_empty() {
            return Ok(Vec::new());
        }
        let micro_batches: Vec<TokenBatch> = batches.iter().map(|batch| token_batch(batch, sequences)).collect();
        let mut scores: Vec<Option<Tensor<1>>> = vec![None; batches.len()];
        self.make_executor(batches.len())?;
        let (_, executor) = self.executor.as_ref().expect("it was made");
        executor.evaluate(&self.chunks, &micro_batches, |number, tensor| {
            scores[number] = Some(tensor)
        })?;
        let read = |tensor: Tensor<1>| tensor.into_data().iter::<f64>().collect();
        Ok(scores.into_iter().flatten().map(read).collect())
    }

    fn make_executor(&mut self, num_micro_batches: usize) -> Result<(), PipelineError> {
        if matches!(&self.executor, Some((count, _)) if *count == num_micro_batches) {
            return Ok(());
        }
        let schedule = ScheduleConfig {
            kind: ScheduleKind::GPipe,
            num_stages: self.context.grid().pipeline_parallel_size(),
            num_chunks: self.chunks.len(),
            num_micro_batches,
        };
        let schedule = schedule.forward_only()?;
        let executor = PipelineExecutor::new(schedule, &self.context)?;
        self.executor = Some((num_micro_batches, executor));
        Ok(())
    }
}

/// The batches of a round that a replica computes: `each` of them, of the last round fewer or none.
fn share(round: usize, each: usize, replica: usize) -> Range<usize> {
    let first = (replica * each).min(round);
    first..(first + each).min(round)
}

/// The batch as the model takes it. Padding is after each sequence, so that no token of it attends to any.
fn token_batch(batch: &Batch, sequences: &[Sequence]) -> TokenBatch {
    let all = batch.rows * batch.seq_length;
    let (mut tokens, mut targets) = (Vec::with_capacity(all), Vec::with_capacity(all));
    for (row, number) in batch.sequences.iter().enumerate() {
        let sequence = &sequences[*number];
        tokens.extend(sequence.inputs().iter().map(|token| *token as i32));
        targets.extend(sequence.targets().iter().map(|token| *token as i32));
        for padded in [&mut tokens, &mut targets] {
            padded.resize((row + 1) * batch.seq_length, 0);
        }
    }
    tokens.resize(all, 0);
    targets.resize(all, 0);
    let micro_batch = MicroBatch {
        tokens,
        targets,
        sample_ids: (0..batch.rows as u64).collect(),
        micro_batch_size: batch.rows,
        seq_length: batch.seq_length,
        ..MicroBatch::default()
    };
    TokenBatch::new(&micro_batch, 0, 0)
}

/// The log-probability of a sequence's scored tokens, and 1 if each is the most probable one; `row` begins with the
/// losses and margins of its tokens.
fn sum(row: &[f64], sequence: &Sequence) -> [f64; 2] {
    let end = sequence.targets().len();
    let scored = &row[(end - sequence.num_scored()) * SCORES_EACH..end * SCORES_EACH];
    let pairs = scored.chunks_exact(SCORES_EACH);
    let loss: f64 = pairs.clone().map(|pair| pair[0]).sum();
    let is_greedy = pairs.into_iter().all(|pair| pair[1] == 0.0);
    [-loss, f64::from(u8::from(is_greedy))]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn the_replicas_share_all_batches_of_a_round() {
        assert_eq!([0, 1, 2].map(|replica| share(6, 2, replica)), [0..2, 2..4, 4..6]);
        assert_eq!([0, 1, 2].map(|replica| share(3, 2, replica)), [0..2, 2..3, 3..3]);
    }

    #[test]
    fn only_scored_tokens_count() {
        let tokens: Arc<[u32]> = Arc::from([1, 2, 3, 4]);
        let sequence = Sequence::new(&tokens, 0..4, 2);
        let row = [9.0, 5.0, 0.5, 0.0, 0.25, 0.0, 7.0, 7.0];
        assert_eq!(sum(&row, &sequence), [-0.75, 1.0]);
        let row = [9.0, 0.0, 0.5, 0.125, 0.25, 0.0];
        assert_eq!(sum(&row, &sequence), [-0.75, 0.0]);
    }
}
