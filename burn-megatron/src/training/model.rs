//! `LanguageModel`: what the trainer asks of a model, and `TokenBatch`, what it gives it.
//!
//! Implemented by models, called by the trainer.

use burn::tensor::{DType, Int, Tensor, TensorData, backend::Backend};

use crate::data::MicroBatch;
use crate::random::{StepCoordinates, TokenMap};

/// A model that predicts each token's successor.
pub trait LanguageModel<B: Backend> {
    /// Returns the cross-entropy of each token's successor, in nats.
    ///
    /// # Shapes
    /// - `batch.tokens` and `batch.targets`: `[batch, seq]`
    /// - output: `[batch * seq]`, the same on every tensor-parallel rank
    fn token_losses(&self, batch: TokenBatch<B>) -> Tensor<B, 1>;

    /// The number of tokens that the model knows, without padding: tokens are below it.
    fn vocab_size(&self) -> usize;
}

/// One micro-batch as tensors, with what dropout must know of it.
#[derive(Clone, Debug)]
pub struct TokenBatch<B: Backend> {
    /// `[batch, seq]`.
    pub tokens: Tensor<B, 2, Int>,
    /// `[batch, seq]`: the successor of each token.
    pub targets: Tensor<B, 2, Int>,
    /// The place of each token.
    pub step: StepCoordinates,
}

impl<B: Backend> TokenBatch<B> {
    /// Returns the tensors of a micro-batch in step `iteration`; `seed` is that of dropout.
    pub fn new(micro_batch: &MicroBatch, seed: u64, iteration: u64, device: &B::Device) -> Self {
        let shape = [micro_batch.micro_batch_size, micro_batch.seq_length];
        let tensor = |values: &[i32]| {
            let data = TensorData::new(values.to_vec(), shape);
            Tensor::from_data(data, (device, DType::I32))
        };
        Self {
            tokens: tensor(&micro_batch.tokens),
            targets: tensor(&micro_batch.targets),
            step: StepCoordinates {
                seed,
                iteration,
                tokens: TokenMap::of_samples(&micro_batch.sample_ids, micro_batch.seq_length),
            },
        }
    }
}
