//! Losses of tokens: on the device while a step runs, then on the host in f64, masked, summed and counted.

use burn::tensor::{Tensor, backend::Backend};

use crate::data::MicroBatch;

/// The token losses of some micro-batches, which stay on the device until all have run, and are then read at once: a
/// read waits for everything that was launched before it.
pub(super) struct TokenLosses<B: Backend>(Vec<Option<Tensor<B, 1>>>);

impl<B: Backend> TokenLosses<B> {
    /// Returns a place for those of each micro-batch. On all stages of a pipeline except the last they stay empty.
    pub(super) fn new(num_micro_batches: usize) -> Self {
        Self(vec![None; num_micro_batches])
    }

    /// Keeps those of a micro-batch, `[batch * seq]`.
    pub(super) fn put(&mut self, micro_batch: usize, losses: Tensor<B, 1>) {
        self.0[micro_batch] = Some(losses);
    }

    /// Returns those that there are, in the order of the micro-batches, `[batch * seq]` each.
    pub(super) fn tensors(&self) -> Vec<Tensor<B, 1>> {
        self.0.iter().flatten().cloned().collect()
    }

    /// Reads all of them, and returns their [sums](Self::sums).
    pub(super) fn read(&self, micro_batches: &[MicroBatch]) -> Vec<(f64, f64)> {
        match self.tensors() {
            none if none.is_empty() => Vec::new(),
            losses => {
                let values: Vec<f64> = Tensor::cat(losses, 0).into_data().iter::<f64>().collect();
                self.sums(&values, micro_batches)
            }
        }
    }

    /// Returns for each micro-batch that has some the sum of the unmasked ones and their number; `values` are those of
    /// all [tensors](Self::tensors).
    ///
    /// In f64, over the tokens in order: the sums do not depend on the device, or on how a batch was cut.
    pub(super) fn sums(&self, values: &[f64], micro_batches: &[MicroBatch]) -> Vec<(f64, f64)> {
        let mut rest = values;
        let of_each = self.0.iter().zip(micro_batches);
        let sums = of_each.filter_map(|(losses, micro_batch)| {
            let (own, others) = rest.split_at(losses.as_ref()?.dims()[0]);
            rest = others;
            Some(masked_sum(own, micro_batch.loss_mask.as_deref()))
        });
        sums.collect()
    }
}

/// The sum of the unmasked losses, and their number.
fn masked_sum(losses: &[f64], mask: Option<&[f32]>) -> (f64, f64) {
    match mask {
        None => (losses.iter().sum(), losses.len() as f64),
        Some(mask) => losses
            .iter()
            .zip(mask)
            .map(|(&loss, &weight)| (loss * f64::from(weight), f64::from(weight)))
            .fold((0.0, 0.0), |(sum, count), (loss, weight)| (sum + loss, count + weight)),
    }
}

#[cfg(test)]
mod tests {
    use burn_flex::Flex;

    use super::*;

    fn micro_batch(loss_mask: Option<Vec<f32>>) -> MicroBatch {
        MicroBatch {
            tokens: vec![0; 3],
            targets: vec![0; 3],
            loss_mask,
            position_ids: None,
            documents: None,
            sample_ids: vec![0],
            micro_batch_size: 1,
            seq_length: 3,
        }
    }

    #[test]
    fn each_micro_batch_is_summed_by_its_own_mask() {
        let micro_batches = [
            micro_batch(None),
            micro_batch(Some(vec![1.0, 0.0, 1.0])),
            micro_batch(None),
        ];
        let mut losses = TokenLosses::<Flex>::new(3);
        let tensor = |values: [f32; 3]| Tensor::from_floats(values, &Default::default());
        // In the order of a schedule that ends with an earlier one.
        losses.put(1, tensor([8.0, 16.0, 32.0]));
        losses.put(0, tensor([1.0, 2.0, 4.0]));
        assert_eq!(losses.read(&micro_batches), [(7.0, 3.0), (40.0, 2.0)]);
    }

    #[test]
    fn a_stage_without_losses_reads_nothing() {
        assert!(TokenLosses::<Flex>::new(1).read(&[micro_batch(None)]).is_empty());
    }
}
