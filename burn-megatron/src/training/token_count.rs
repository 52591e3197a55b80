//! The numbers of losses of a global batch, counted while the first forward passes run: parameters that are on their
//! way come before it.

use std::cell::{Cell, OnceCell};

use crate::collectives::{CollectiveError, Pending, ProcessGroup, ReduceOp};
use crate::data::MicroBatch;

/// How many losses a global batch has of each kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LossCounts {
    /// Of unmasked tokens, by their weights.
    pub tokens: f64,
    /// Of sentence pairs.
    pub pairs: f64,
}

impl LossCounts {
    /// Returns how much each loss of a micro-batch counts against the tokens', so that the mean over the pairs is as
    /// much of the whole as that over the tokens; `None` if all count alike.
    pub fn weights(self, micro_batch: &MicroBatch) -> Option<Vec<f64>> {
        let pairs = micro_batch.num_pairs();
        if micro_batch.loss_mask.is_none() && pairs == 0 {
            return None;
        }
        let mut weights = match &micro_batch.loss_mask {
            Some(mask) => mask.iter().map(|&weight| f64::from(weight)).collect(),
            None => vec![1.0; micro_batch.targets.len()],
        };
        weights.resize(weights.len() + pairs, self.tokens / self.pairs);
        Some(weights)
    }
}

/// The losses of all data-parallel ranks in a step.
pub(super) struct TokenCount {
    pending: Cell<Option<Pending<Vec<f64>>>>,
    total: OnceCell<LossCounts>,
}

impl TokenCount {
    /// Starts to count.
    ///
    /// # Communication
    /// One all-reduce of two numbers over `data_group`.
    pub(super) fn start(micro_batches: &[MicroBatch], data_group: &ProcessGroup) -> Self {
        let tokens: f64 = micro_batches.iter().map(MicroBatch::token_weight).sum();
        let pairs: usize = micro_batches.iter().map(MicroBatch::num_pairs).sum();
        let pending = data_group.all_reduce_start(vec![tokens, pairs as f64], ReduceOp::Sum);
        Self {
            pending: Cell::new(Some(pending)),
            total: OnceCell::new(),
        }
    }

    /// Returns the numbers.
    ///
    /// # Errors
    /// When the collective failed.
    ///
    /// # Panics
    /// When it is asked again after that.
    pub(super) fn total(&self) -> Result<LossCounts, CollectiveError> {
        if let Some(&total) = self.total.get() {
            return Ok(total);
        }
        let pending = self.pending.take().expect("a step ends with its first error");
        let total = pending.wait()?;
        Ok(*self.total.get_or_init(|| LossCounts {
            tokens: total[0],
            pairs: total[1],
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::SentencePairs;

    #[test]
    fn pairs_weigh_as_much_as_tokens() {
        let counts = LossCounts {
            tokens: 6.0,
            pairs: 4.0,
        };
        let batch = MicroBatch {
            targets: vec![0; 3],
            loss_mask: Some(vec![1.0, 0.0, 1.0]),
            ..MicroBatch::default()
        };
        assert_eq!(counts.weights(&batch), Some(vec![1.0, 0.0, 1.0]));
        let with_pair = MicroBatch {
            sentences: Some(SentencePairs {
                token_types: vec![0; 3],
                is_random: Some(vec![1]),
            }),
            ..batch
        };
        assert_eq!(counts.weights(&with_pair), Some(vec![1.0, 0.0, 1.0, 1.5]));
        let plain = MicroBatch {
            targets: vec![0; 3],
            ..MicroBatch::default()
        };
        assert_eq!(counts.weights(&plain), None);
    }
}
