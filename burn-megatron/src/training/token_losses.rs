//! Losses of tokens: on the device while a step runs, then on the host in f64, masked, summed and counted.

use burn::tensor::Tensor;

use crate::collectives::{CollectiveError, ReduceOp};
use crate::context::ParallelContext;
use crate::data::MicroBatch;

/// The token losses of some micro-batches, which stay on the device until all have run, and are then read at once: a
/// read waits for everything that was launched before it.
pub(super) struct TokenLosses(Vec<Option<Tensor<1>>>);

impl TokenLosses {
    /// Returns a place for those of each micro-batch. On all stages of a pipeline except the last they stay empty.
    pub(super) fn new(num_micro_batches: usize) -> Self {
        Self(vec![None; num_micro_batches])
    }

    /// Keeps those of a micro-batch, `[batch * seq]`.
    pub(super) fn put(&mut self, micro_batch: usize, losses: Tensor<1>) {
        self.0[micro_batch] = Some(losses);
    }

    /// Returns those that there are, in the order of the micro-batches, `[batch * seq]` each.
    pub(super) fn tensors(&self) -> Vec<Tensor<1>> {
        self.0.iter().flatten().cloned().collect()
    }

    /// Reads all of them, and returns their [sums](Self::sums).
    pub(super) fn read(&self, micro_batches: &[MicroBatch]) -> LossSums {
        match self.tensors() {
            none if none.is_empty() => LossSums::default(),
            losses => {
                let values: Vec<f64> = Tensor::cat(losses, 0).into_data().iter::<f64>().collect();
                self.sums(&values, micro_batches)
            }
        }
    }

    /// Returns the sums over all micro-batches that have some; `values` are those of all [tensors](Self::tensors).
    ///
    /// In f64, over the tokens in order, then over micro-batches: the sums do not depend on the device.
    pub(super) fn sums(&self, values: &[f64], micro_batches: &[MicroBatch]) -> LossSums {
        let mut rest = values;
        let mut sums = LossSums::default();
        for (losses, micro_batch) in self.0.iter().zip(micro_batches) {
            let Some(losses) = losses else { continue };
            let (own, others) = rest.split_at(losses.dims()[0]);
            rest = others;
            sums.add(own, micro_batch);
        }
        sums
    }
}

/// Sums of losses, and how much of each kind they are of.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct LossSums {
    /// Sum over tokens, each times its weight.
    pub tokens: f64,
    /// The sum of the tokens' weights.
    pub token_weights: f64,
    /// Sum over sentence pairs.
    pub pairs: f64,
    /// The number of sentence pairs.
    pub num_pairs: f64,
}

impl LossSums {
    fn add(&mut self, losses: &[f64], micro_batch: &MicroBatch) {
        let (of_tokens, of_pairs) = losses.split_at(micro_batch.targets.len());
        self.tokens += match &micro_batch.loss_mask {
            None => of_tokens.iter().sum::<f64>(),
            Some(mask) => of_tokens
                .iter()
                .zip(mask)
                .map(|(&loss, &weight)| loss * f64::from(weight))
                .sum(),
        };
        self.token_weights += micro_batch.token_weight();
        self.pairs += of_pairs.iter().sum::<f64>();
        self.num_pairs += of_pairs.len() as f64;
    }

    /// Returns the same over all ranks.
    ///
    /// # Communication
    /// One all-reduce of four numbers over the data-parallel group, and one over the pipeline group.
    ///
    /// # Errors
    /// When a collective fails.
    pub(super) fn over_ranks(self, context: &ParallelContext) -> Result<Self, CollectiveError> {
        let mut numbers = [self.tokens, self.token_weights, self.pairs, self.num_pairs];
        context.data_group().all_reduce(&mut numbers, ReduceOp::Sum)?;
        context.pipeline_group().all_reduce(&mut numbers, ReduceOp::Sum)?;
        let [tokens, token_weights, pairs, num_pairs] = numbers;
        Ok(Self {
            tokens,
            token_weights,
            pairs,
            num_pairs,
        })
    }

    /// The mean over the tokens, plus that over the pairs if there are some.
    pub(super) fn mean(self) -> f64 {
        let pairs = if self.num_pairs > 0.0 {
            self.pairs / self.num_pairs
        } else {
            0.0
        };
        self.tokens / self.token_weights + pairs
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;
    use crate::data::SentencePairs;

    fn micro_batch(loss_mask: Option<Vec<f32>>) -> MicroBatch {
        MicroBatch {
            tokens: vec![0; 3],
            targets: vec![0; 3],
            loss_mask,
            sample_ids: vec![0],
            micro_batch_size: 1,
            seq_length: 3,
            ..MicroBatch::default()
        }
    }

    #[test]
    fn each_micro_batch_is_summed_by_its_own_mask() {
        let micro_batches = [
            micro_batch(None),
            micro_batch(Some(vec![1.0, 0.0, 1.0])),
            micro_batch(None),
        ];
        let mut losses = TokenLosses::new(3);
        let tensor = |values: [f32; 3]| Tensor::from_floats(values, &Device::flex());
        // In the order of a schedule that ends with an earlier one.
        losses.put(1, tensor([8.0, 16.0, 32.0]));
        losses.put(0, tensor([1.0, 2.0, 4.0]));
        let sums = losses.read(&micro_batches);
        assert_eq!((sums.tokens, sums.token_weights, sums.num_pairs), (47.0, 5.0, 0.0));
        assert_eq!(sums.mean(), 9.4);
    }

    #[test]
    fn pairs_are_summed_by_themselves() {
        let pairs = MicroBatch {
            sentences: Some(SentencePairs {
                token_types: vec![0; 3],
                is_random: Some(vec![0]),
            }),
            ..micro_batch(Some(vec![0.0, 1.0, 0.0]))
        };
        let mut losses = TokenLosses::new(1);
        losses.put(0, Tensor::from_floats([8.0, 3.0, 16.0, 0.5], &Device::flex()));
        let sums = losses.read(&[pairs]);
        assert_eq!((sums.tokens, sums.pairs, sums.num_pairs), (3.0, 0.5, 1.0));
        assert_eq!(sums.mean(), 3.5);
    }

    #[test]
    fn a_stage_without_losses_reads_nothing() {
        let sums = TokenLosses::new(1).read(&[micro_batch(None)]);
        assert_eq!(sums, LossSums::default());
    }
}
