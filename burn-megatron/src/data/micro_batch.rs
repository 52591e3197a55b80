//! [`MicroBatch`]: what a data-parallel rank trains on at a time.

use cubecl_kernels::flash_attention::Documents;

/// The tokens of one micro-batch of one data-parallel rank.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MicroBatch {
    /// Inputs, `[micro_batch_size * seq_length]`, sample by sample.
    pub tokens: Vec<i32>,
    /// What each input is to predict, such as its successor or what was masked, `[micro_batch_size * seq_length]`.
    pub targets: Vec<i32>,
    /// How much each target counts in the loss, `[micro_batch_size * seq_length]`; all count alike if not given.
    pub loss_mask: Option<Vec<f32>>,
    /// The position of each input, `[micro_batch_size * seq_length]`; its place in its sample if not given.
    pub position_ids: Option<Vec<i32>>,
    /// The documents that the samples consist of, each of which attends to itself alone; whole samples if not given.
    pub documents: Option<Documents>,
    /// Number of each sample in training order, `[micro_batch_size]`: the same on every rank that
    /// reads the sample, whatever the layout.
    pub sample_ids: Vec<u64>,
    /// Number of samples.
    pub micro_batch_size: usize,
    /// Tokens per sample.
    pub seq_length: usize,
    /// What pairs of sentences have in addition, as BERT reads them.
    pub sentences: Option<SentencePairs>,
    /// What an encoder reads, where `tokens` and `targets` are a decoder's.
    pub encoder: Option<EncoderTokens>,
}

/// What a micro-batch of sentence pairs has in addition to its tokens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SentencePairs {
    /// Which sentence each token is of, 0 or 1, `[micro_batch_size * seq_length]`.
    pub token_types: Vec<i32>,
    /// 1 where the second sentence is not the first one's successor, else 0, `[micro_batch_size]`; `None` if that is
    /// not to be learnt.
    pub is_random: Option<Vec<i32>>,
}

/// What an encoder reads of a micro-batch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EncoderTokens {
    /// `[micro_batch_size * seq_length]`, padded at the end of each sample.
    pub tokens: Vec<i32>,
    /// The tokens of each sample without padding, `[micro_batch_size]`.
    pub lengths: Vec<usize>,
    /// Tokens per sample, with padding.
    pub seq_length: usize,
}

impl MicroBatch {
    /// How much all targets count together: their number if all count alike.
    pub fn token_weight(&self) -> f64 {
        match &self.loss_mask {
            None => self.targets.len() as f64,
            Some(mask) => mask.iter().map(|&weight| f64::from(weight)).sum(),
        }
    }

    /// The number of sentence pairs whose order is to be learnt.
    pub fn num_pairs(&self) -> usize {
        let pairs = self.sentences.as_ref().and_then(|pairs| pairs.is_random.as_ref());
        pairs.map_or(0, Vec::len)
    }
}
