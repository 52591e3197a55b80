//! Losses of tokens on the host: in f64, masked, summed and counted.

use burn::tensor::{Tensor, backend::Backend};

use crate::data::MicroBatch;

/// Each token's loss in f64: sums over a batch are taken there, so that they do not depend on how it was cut.
pub(super) fn host_losses<B: Backend>(losses: Tensor<B, 1>) -> Vec<f64> {
    losses.into_data().iter::<f64>().collect()
}

pub(super) fn num_unmasked(micro_batch: &MicroBatch) -> f64 {
    match &micro_batch.loss_mask {
        None => micro_batch.targets.len() as f64,
        Some(mask) => mask.iter().map(|&weight| f64::from(weight)).sum(),
    }
}

/// The sum of the unmasked losses, and their number.
pub(super) fn masked_sum(losses: &[f64], mask: Option<&[f32]>) -> (f64, f64) {
    match mask {
        None => (losses.iter().sum(), losses.len() as f64),
        Some(mask) => losses
            .iter()
            .zip(mask)
            .map(|(&loss, &weight)| (loss * f64::from(weight), f64::from(weight)))
            .fold((0.0, 0.0), |(sum, count), (loss, weight)| (sum + loss, count + weight)),
    }
}
