//! [`BertBatches`] and [`T5Batches`]: micro-batches of texts that miss something, which a model tells.

use std::sync::Arc;

use burn_megatron_data::bert_dataset::BertSample;
use burn_megatron_data::samples::SampleSet;
use burn_megatron_data::t5_dataset::T5Sample;
use burn_megatron_data::tokenizer::Token;
use cubecl_kernels::flash_attention::Documents;

use super::{BatchSource, DataError, EncoderTokens, MicroBatch, SentencePairs};

/// Micro-batches of BERT: tokens to tell, and whether two segments are in their order.
pub struct BertBatches {
    dataset: Arc<dyn SampleSet<Sample = BertSample>>,
    tells_pairs: bool,
}

impl BertBatches {
    /// Returns the micro-batches of a data set of two segments, if `tells_pairs`, or of one.
    pub fn new(dataset: Arc<dyn SampleSet<Sample = BertSample>>, tells_pairs: bool) -> Self {
        Self { dataset, tells_pairs }
    }
}

impl BatchSource for BertBatches {
    fn num_samples(&self) -> u64 {
        self.dataset.num_samples()
    }

    fn order(&self) -> Vec<u64> {
        self.dataset.order()
    }

    fn gather(&self, sample_ids: Vec<u64>) -> Result<MicroBatch, DataError> {
        let seq_length = self.dataset.seq_length();
        let (mut tokens, mut targets, mut loss_mask) = (Vec::new(), Vec::new(), Vec::new());
        let (mut token_types, mut is_random, mut lengths) = (Vec::new(), Vec::new(), Vec::new());
        for &id in &sample_ids {
            let BertSample {
                tokens: of_sample,
                token_types: types,
                targets: expected,
                loss_mask: mask,
                length,
                is_next_random,
            } = self.dataset.read(id)?;
            tokens.extend(signed(of_sample));
            targets.extend(signed(expected));
            loss_mask.extend(mask);
            token_types.extend(signed(types));
            is_random.push(i32::from(is_next_random));
            lengths.push(length);
        }
        let documents = Documents::of_padded(seq_length, &lengths);
        Ok(MicroBatch {
            tokens,
            targets,
            loss_mask: Some(loss_mask),
            documents: Some(documents.expect("text and padding are a sample")),
            micro_batch_size: sample_ids.len(),
            sample_ids,
            seq_length,
            sentences: Some(SentencePairs {
                token_types,
                is_random: self.tells_pairs.then_some(is_random),
            }),
            ..MicroBatch::default()
        })
    }
}

/// Micro-batches of T5: a text without spans for the encoder, and the spans for the decoder.
pub struct T5Batches {
    dataset: Arc<dyn SampleSet<Sample = T5Sample>>,
    decoder_seq_length: usize,
}

impl T5Batches {
    /// Returns the micro-batches of a data set, whose samples have this number of tokens for the decoder.
    pub fn new(dataset: Arc<dyn SampleSet<Sample = T5Sample>>, decoder_seq_length: usize) -> Self {
        Self {
            dataset,
            decoder_seq_length,
        }
    }
}

impl BatchSource for T5Batches {
    fn num_samples(&self) -> u64 {
        self.dataset.num_samples()
    }

    fn order(&self) -> Vec<u64> {
        self.dataset.order()
    }

    fn gather(&self, sample_ids: Vec<u64>) -> Result<MicroBatch, DataError> {
        let mut encoder = EncoderTokens {
            tokens: Vec::new(),
            lengths: Vec::new(),
            seq_length: self.dataset.seq_length(),
        };
        let (mut tokens, mut targets, mut loss_mask) = (Vec::new(), Vec::new(), Vec::new());
        for &id in &sample_ids {
            let sample = self.dataset.read(id)?;
            encoder.tokens.extend(signed(sample.encoder_tokens));
            encoder.lengths.push(sample.encoder_length);
            tokens.extend(signed(sample.decoder_tokens));
            targets.extend(signed(sample.targets));
            loss_mask.extend(sample.loss_mask);
        }
        Ok(MicroBatch {
            tokens,
            targets,
            loss_mask: Some(loss_mask),
            micro_batch_size: sample_ids.len(),
            sample_ids,
            seq_length: self.decoder_seq_length,
            encoder: Some(encoder),
            ..MicroBatch::default()
        })
    }
}

/// Numbers of tokens are below 2^31, as the model's vocabulary is.
fn signed(tokens: Vec<Token>) -> impl Iterator<Item = i32> {
    tokens.into_iter().map(Token::cast_signed)
}
