//! Samples of conversations, to fine-tune a model on the answers of the assistant.
//!
//! [`ChatTemplate`] writes a conversation as a text, [`Conversations`] holds the tokens of files of them and which are
//! answers, and [`ChatDataset`] packs several into a sample.

mod answers;
mod conversation;
mod conversations;
mod error;
mod json;
mod message;
mod numbers;
mod packing;
mod template;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::mt19937::Mt19937;
use crate::samples::{SampleError, SampleSet, at_least_one, entry, fits_32_bits};
use crate::tokenizer::{Token, Tokenizer};

pub use conversations::{ConversationTotals, Conversations, LongConversations};
pub use error::ChatError;
pub use template::{ChatTemplate, PromptEnd};

/// What a data set of conversations is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatDatasetConfig {
    /// Samples wanted: there can be more, up to the end of the last epoch. `None` for those of one epoch.
    pub num_samples: Option<u64>,
    /// Seed of the order of samples, which is another one in each epoch.
    pub seed: u32,
}

impl ChatDatasetConfig {
    /// Returns the configuration for at least `num_samples` samples (`None`: one epoch), with seed 1234.
    pub fn new(num_samples: Option<u64>) -> Self {
        Self {
            num_samples,
            seed: 1234,
        }
    }
}

/// Conversations, one after the other, filled up with padding.
///
/// A conversation of n tokens has n − 1 places: its inputs are all tokens but the last, its targets all but the first.
/// So no target is of another conversation.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ChatSample {
    /// What the model sees, `[seq_length]`.
    pub tokens: Vec<Token>,
    /// The next token of the same conversation, 0 in the padding, `[seq_length]`.
    pub targets: Vec<Token>,
    /// 1 where the target is of an answer, 0 elsewhere, `[seq_length]`.
    pub loss_mask: Vec<f32>,
    /// Position of each token in its conversation, `[seq_length]`.
    pub position_ids: Vec<u32>,
    /// First place of the conversation of each token, `[seq_length]`: attention sees nothing before it. The padding is
    /// a conversation of its own.
    pub document_starts: Vec<usize>,
    /// Tokens before the padding.
    pub length: usize,
}

impl ChatSample {
    fn push(&mut self, tokens: &[Token], answers: impl Iterator<Item = Range<usize>>) {
        let start = self.tokens.len();
        let num_inputs = tokens.len() - 1;
        self.tokens.extend_from_slice(&tokens[..num_inputs]);
        self.targets.extend_from_slice(&tokens[1..]);
        self.loss_mask.resize(start + num_inputs, 0.0);
        for answer in answers {
            // Each token is predicted one place before it.
            self.loss_mask[start + answer.start - 1..start + answer.end - 1].fill(1.0);
        }
        self.begin(num_inputs);
    }

    /// Appends positions of a conversation of this many places.
    fn begin(&mut self, num_inputs: usize) {
        let start = self.position_ids.len();
        self.position_ids.extend(0..num_inputs as u32);
        self.document_starts.resize(start + num_inputs, start);
    }

    fn pad(&mut self, seq_length: usize, pad: Token) {
        self.length = self.tokens.len();
        self.tokens.resize(seq_length, pad);
        self.targets.resize(seq_length, 0);
        self.loss_mask.resize(seq_length, 0.0);
        self.begin(seq_length - self.length);
    }
}

/// Samples of conversations.
///
/// Conversations are packed in their order, each into the first sample that has room for it. These samples are shuffled
/// in every epoch. So they depend on the conversations and the seed alone.
#[derive(Clone)]
pub struct ChatDataset {
    conversations: Arc<Conversations>,
    config: ChatDatasetConfig,
    pad: Token,
    /// Conversations of each sample, before the shuffle.
    packs: Vec<Vec<u32>>,
    /// Pack of each sample in training order.
    order: Vec<u32>,
}

impl ChatDataset {
    /// Returns the data set of the conversations `range`. Padding is the tokenizer's, else the end of a document,
    /// else token 0.
    ///
    /// # Errors
    /// There is no conversation, no sample is wanted, or there are more than 32 bits count.
    ///
    /// # Panics
    /// If `range` ends after the last conversation.
    pub fn new(
        config: &ChatDatasetConfig,
        conversations: Arc<Conversations>,
        range: Range<usize>,
        tokenizer: &dyn Tokenizer,
    ) -> Result<Self, SampleError> {
        assert!(
            range.end <= conversations.len(),
            "conversations {range:?} of {}",
            conversations.len()
        );
        fits_32_bits("number of conversations", range.end as u128)?;
        let lengths: Vec<usize> = range.clone().map(|index| conversations.num_inputs(index)).collect();
        let mut packs = packing::first_fit(&lengths, conversations.seq_length());
        let first = range.start as u32;
        packs
            .iter_mut()
            .flatten()
            .for_each(|conversation| *conversation += first);
        at_least_one("number of conversations with answers", packs.len() as u64)?;
        Ok(Self {
            order: order(config, packs.len())?,
            pad: tokenizer
                .token_roles()
                .pad
                .or(tokenizer.end_of_document())
                .unwrap_or_default(),
            conversations,
            config: config.clone(),
            packs,
        })
    }
}

/// Returns the samples of all epochs, each shuffled alone, by one generator.
fn order(config: &ChatDatasetConfig, per_epoch: usize) -> Result<Vec<u32>, SampleError> {
    at_least_one("number of samples", config.num_samples.unwrap_or(1))?;
    let num_epochs = config.num_samples.map_or(1, |wanted| wanted.div_ceil(per_epoch as u64));
    let num_samples = num_epochs.saturating_mul(per_epoch as u64);
    let num_samples = fits_32_bits("number of samples", num_samples.into())?;
    let mut generator = Mt19937::new(config.seed);
    let mut order = Vec::with_capacity(num_samples);
    for _ in 0..num_epochs {
        let start = order.len();
        order.extend(0..per_epoch as u32);
        generator.shuffle(&mut order[start..]);
    }
    Ok(order)
}

impl SampleSet for ChatDataset {
    type Sample = ChatSample;

    fn num_samples(&self) -> u64 {
        self.order.len() as u64
    }

    /// None: each epoch is shuffled alone, one after the other.
    fn order(&self) -> Vec<u64> {
        Vec::new()
    }

    fn seq_length(&self) -> usize {
        self.conversations.seq_length()
    }

    fn read(&self, index: u64) -> Result<ChatSample, SampleError> {
        let pack = entry(&self.order, index)?;
        let mut sample = ChatSample::default();
        for &conversation in &self.packs[pack as usize] {
            let (tokens, answers) = self.conversations.conversation(conversation as usize);
            sample.push(&tokens, answers);
        }
        sample.pad(self.seq_length(), self.pad);
        Ok(sample)
    }
}

impl fmt::Debug for ChatDataset {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("ChatDataset");
        debug
            .field("config", &self.config)
            .field("seq_length", &self.seq_length());
        debug.field("conversations", &self.conversations.len());
        debug.field("num_samples", &self.num_samples()).finish_non_exhaustive()
    }
}
