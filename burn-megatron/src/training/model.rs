//! `LanguageModel`: what the trainer asks of a model, and `TokenBatch`, what it gives it.

use std::sync::Arc;

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use cubecl_kernels::flash_attention::{Documents, KeyLengths};

use crate::data::{EncoderTokens, MicroBatch, SentencePairs};
use crate::pipeline_parallel::PipelineStage;
use crate::random::{StepCoordinates, TokenMap};

/// A model that predicts tokens, or one of the stages that such a model was cut into.
///
/// The losses, of the last [`PipelineStage`], are the cross-entropy of each token's target in nats, `[batch * seq]`,
/// and after them that of each pair of sentences whose order is to be learnt, of which there are
/// [`MicroBatch::num_pairs`]. They are the same on every tensor-parallel rank.
pub trait LanguageModel: PipelineStage<2, MicroBatch = TokenBatch> {
    /// The number of tokens that the model knows, without padding: tokens are below it. Every stage says the same.
    fn vocab_size(&self) -> usize;
}

/// One micro-batch, with what dropout must know of it.
#[derive(Clone, Debug)]
pub struct TokenBatch {
    tokens: Vec<i32>,
    targets: Vec<i32>,
    position_ids: Option<Arc<[i32]>>,
    /// Samples.
    pub micro_batch_size: usize,
    /// Tokens per sample.
    pub seq_length: usize,
    /// The place of each token.
    pub step: StepCoordinates,
    /// The documents that the samples consist of; `None` if attention goes over whole samples.
    pub documents: Option<Documents>,
    /// Additional numbers of pairs of sentences, as BERT reads them.
    pub sentences: Option<Arc<SentencePairs>>,
    /// Tokens that an encoder reads, where the others are a decoder's.
    pub encoder: Option<EncoderBatch>,
}

/// Tokens that an encoder reads of a micro-batch, with the places that dropout must know.
#[derive(Clone, Debug)]
pub struct EncoderBatch {
    /// The tokens.
    pub tokens: Arc<EncoderTokens>,
    /// The documents that the samples consist of: text and padding.
    pub documents: Documents,
    /// The tokens of each sample that a decoder sees: those of its text.
    pub key_lengths: KeyLengths,
    /// The place of each of them.
    pub step: StepCoordinates,
}

impl EncoderBatch {
    fn new(tokens: &EncoderTokens, step: StepCoordinates) -> Self {
        let EncoderTokens {
            lengths, seq_length, ..
        } = tokens;
        let documents = Documents::of_padded(*seq_length, lengths);
        Self {
            documents: documents.unwrap_or_else(|error| panic!("{error}")),
            key_lengths: KeyLengths::new(lengths.clone()),
            tokens: Arc::new(tokens.clone()),
            step,
        }
    }
}

impl TokenBatch {
    /// Returns a micro-batch as it is in step `iteration`; `seed` is that of dropout.
    ///
    /// # Panics
    /// When a sample of the encoder's tokens is longer than their padding.
    pub fn new(micro_batch: &MicroBatch, seed: u64, iteration: u64) -> Self {
        let step_of = |seq_length| StepCoordinates {
            seed,
            iteration,
            tokens: TokenMap::of_samples(&micro_batch.sample_ids, seq_length),
        };
        Self {
            tokens: micro_batch.tokens.clone(),
            targets: micro_batch.targets.clone(),
            position_ids: micro_batch.position_ids.as_deref().map(Arc::from),
            micro_batch_size: micro_batch.micro_batch_size,
            seq_length: micro_batch.seq_length,
            step: step_of(micro_batch.seq_length),
            documents: micro_batch.documents.clone(),
            sentences: micro_batch.sentences.clone().map(Arc::new),
            encoder: micro_batch
                .encoder
                .as_ref()
                .map(|tokens| EncoderBatch::new(tokens, step_of(tokens.seq_length))),
        }
    }

    /// The number of tokens.
    pub fn num_tokens(&self) -> usize {
        self.micro_batch_size * self.seq_length
    }

    /// The tokens in host memory, sample by sample.
    pub fn host_tokens(&self) -> &[i32] {
        &self.tokens
    }

    /// Returns the tokens, `[batch, seq]`.
    pub fn tokens(&self, device: &Device) -> Tensor<2, Int> {
        self.tensor(&self.tokens, device)
    }

    /// Returns the target of each token, `[batch, seq]`: its successor, or what was masked.
    pub fn targets(&self, device: &Device) -> Tensor<2, Int> {
        self.tensor(&self.targets, device)
    }

    /// Returns the position of each token, `[batch * seq]`; `None` if it is the token's place in its sample.
    pub fn positions(&self, device: &Device) -> Option<Tensor<1, Int>> {
        Some(numbers(self.position_ids.as_deref()?, device))
    }

    /// Returns the type of each token, `[batch * seq]`; `None` if the samples are no pairs of sentences.
    pub fn token_types(&self, device: &Device) -> Option<Tensor<1, Int>> {
        let pairs = self.sentences.as_ref()?;
        Some(numbers(&pairs.token_types, device))
    }

    /// Returns 1 for each pair of sentences whose second one does not follow the first, else 0, `[batch]`; `None` if
    /// that is not to be learnt.
    pub fn pair_targets(&self, device: &Device) -> Option<Tensor<1, Int>> {
        let pairs = self.sentences.as_ref()?;
        Some(numbers(pairs.is_random.as_ref()?, device))
    }

    /// The positions in host memory.
    pub fn host_positions(&self) -> Option<Arc<[i32]>> {
        self.position_ids.clone()
    }

    /// Returns [tokens](Self::tokens) and [targets](Self::targets), by one copy to the device.
    pub fn tokens_and_targets(&self, device: &Device) -> [Tensor<2, Int>; 2] {
        let shape = [self.micro_batch_size, self.seq_length];
        let both = [&self.tokens[..], &self.targets].concat();
        let length = both.len();
        let both = Tensor::<1, Int>::from_data(TensorData::new(both, [length]), (device, DType::I32));
        let [tokens, targets] = [0..length / 2, length / 2..length].map(|range| both.clone().slice(range));
        [tokens.reshape(shape), targets.reshape(shape)]
    }

    fn tensor(&self, values: &[i32], device: &Device) -> Tensor<2, Int> {
        let data = TensorData::new(values.to_vec(), [self.micro_batch_size, self.seq_length]);
        Tensor::from_data(data, (device, DType::I32))
    }
}

fn numbers(values: &[i32], device: &Device) -> Tensor<1, Int> {
    let data = TensorData::new(values.to_vec(), [values.len()]);
    Tensor::from_data(data, (device, DType::I32))
}
