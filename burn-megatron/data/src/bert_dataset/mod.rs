//! BERT's samples: two segments of sentences, perhaps in the wrong order, and masked tokens to predict.

#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::index_cache::IndexCache;
use crate::indexed_dataset::SentenceDocuments;
use crate::masked_dataset::{
    MaskedDatasetConfig, MaskedSamples, MaskingConfig, RandomState, SampleShape, Text, needed,
};
use crate::samples::{SampleError, SampleSet};
use crate::tokenizer::{Token, Tokenizer};

/// What a data set of BERT is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct BertDatasetConfig {
    /// Length, number and seed of the samples, and what is masked.
    pub samples: MaskedDatasetConfig,
    /// Whether a sample is two segments, swapped in half of the samples, for a head that tells the order; otherwise it
    /// is one. Megatron-LM's `classification_head` (`--bert-no-binary-head`).
    pub two_segments: bool,
}

impl BertDatasetConfig {
    /// Returns the configuration for at least `num_samples` samples (`None`: one epoch): seed 1234, two segments, one
    /// sample in ten short, masks as [`MaskingConfig::bert`].
    pub fn new(seq_length: usize, num_samples: Option<u64>) -> Self {
        Self {
            samples: MaskedDatasetConfig::new(seq_length, num_samples, MaskingConfig::bert()),
            two_segments: true,
        }
    }
}

/// A sample of BERT: `[CLS] A [SEP] B [SEP]`, filled up with `[PAD]`.
#[derive(Debug, Clone, PartialEq)]
pub struct BertSample {
    /// What the model sees, `[seq_length]`.
    pub tokens: Vec<Token>,
    /// 0 up to the first `[SEP]` and in the padding, 1 after it, `[seq_length]`.
    pub token_types: Vec<u32>,
    /// The token that was at each masked place, 0 elsewhere, `[seq_length]`.
    pub targets: Vec<Token>,
    /// 1 at masked places, 0 elsewhere, `[seq_length]`.
    pub loss_mask: Vec<f32>,
    /// Tokens before the padding.
    pub length: usize,
    /// Whether A follows B in the text: the label of the head that tells the order.
    pub is_next_random: bool,
}

/// Samples of BERT from documents of sentences.
///
/// A document is cut into samples of about `seq_length − 3` tokens, of at least two sentences if there are two
/// segments. Segment A is the first sentences of a sample, at least one, and B the others. What is too long is cut at
/// both ends of the longer one, token by token, the end drawn. Of the tokens that [`MaskingConfig`] chooses, 80% become
/// `[MASK]`, 10% any token of the vocabulary, and 10% stay; `[CLS]` and `[SEP]` are never chosen. A sample of very few
/// tokens has none.
///
/// # Reference
/// Devlin et al. 2018, "BERT", arXiv:1810.04805; the swapped segments are from Lan et al. 2019, "ALBERT",
/// arXiv:1909.11942. Megatron-LM's `BERTMaskedWordPieceDataset`, whose samples, order and masks these are.
#[derive(Clone)]
pub struct BertDataset {
    samples: MaskedSamples,
    two_segments: bool,
    added: AddedTokens,
}

#[derive(Debug, Clone, Copy)]
struct AddedTokens {
    cls: Token,
    sep: Token,
    mask: Token,
    pad: Token,
}

impl BertDataset {
    /// Returns the data set of the documents `range`. Its order is made by this process and kept, or mapped from
    /// `cache`, where it is made first if it is not there.
    ///
    /// # Errors
    /// A setting is outside its range, the tokenizer has no `[CLS]`, `[SEP]`, `[MASK]` or `[PAD]`, no document gives a
    /// sample; as of the cache.
    ///
    /// # Panics
    /// If `range` ends after the last document.
    pub fn new(
        config: &BertDatasetConfig,
        documents: Arc<dyn SentenceDocuments>,
        range: Range<usize>,
        tokenizer: Arc<dyn Tokenizer>,
        cache: Option<&IndexCache>,
    ) -> Result<Self, SampleError> {
        let roles = tokenizer.token_roles();
        let added = AddedTokens {
            cls: needed(roles.cls, "BERT", "a token that begins a sample ([CLS])")?,
            sep: needed(roles.sep, "BERT", "a token that ends a segment ([SEP])")?,
            mask: needed(roles.mask, "BERT", "a token for masked ones ([MASK])")?,
            pad: needed(roles.pad, "BERT", "a token for padding ([PAD])")?,
        };
        let shape = SampleShape {
            added_tokens: 3,
            min_sentences: if config.two_segments { 2 } else { 1 },
        };
        Ok(Self {
            samples: MaskedSamples::new(&config.samples, shape, documents, &range, tokenizer, cache)?,
            two_segments: config.two_segments,
            added,
        })
    }

    /// Draws what the segments are, and whether they are swapped.
    fn segments(&self, text: &Text, random: &mut RandomState) -> ([Range<usize>; 2], bool) {
        let num_sentences = text.sentence_ends.len();
        let mut pivot = num_sentences;
        let mut is_swapped = false;
        if self.two_segments {
            pivot = 1;
            if num_sentences >= 3 {
                pivot += random.up_to(num_sentences as u32 - 2) as usize;
            }
            is_swapped = random.random() < 0.5;
        }
        let middle = text.sentence_ends[pivot - 1];
        let mut segments = [0..middle, middle..text.tokens.len()];
        if is_swapped {
            segments.reverse();
        }
        shorten(&mut segments, text.target_length, random);
        (segments, is_swapped)
    }

    /// Draws what takes the place of a masked token.
    fn replacement(&self, token: Token, random: &mut RandomState) -> Token {
        if random.random() < 0.8 {
            self.added.mask
        } else if random.random() >= 0.5 {
            random.up_to(self.samples.tokenizer.vocabulary_size() as u32 - 1)
        } else {
            token
        }
    }
}

/// Takes tokens from the ends of the longer segment, of B if they are equal, until both have `target_length`.
fn shorten([a, b]: &mut [Range<usize>; 2], target_length: usize, random: &mut RandomState) {
    while a.len() + b.len() > target_length {
        let longer = if a.len() > b.len() { &mut *a } else { &mut *b };
        if random.random() < 0.5 {
            longer.start += 1;
        } else {
            longer.end -= 1;
        }
    }
}

impl SampleSet for BertDataset {
    type Sample = BertSample;

    fn num_samples(&self) -> u64 {
        self.samples.num_samples()
    }

    fn seq_length(&self) -> usize {
        self.samples.config.seq_length
    }

    fn read(&self, index: u64) -> Result<BertSample, SampleError> {
        let (text, mut random) = self.samples.read(index)?;
        let AddedTokens { cls, sep, pad, .. } = self.added;
        let ([a, b], is_next_random) = self.segments(&text, &mut random);
        let mut tokens = vec![cls];
        tokens.extend_from_slice(&text.tokens[a]);
        tokens.push(sep);
        let mut token_types = vec![0; tokens.len()];
        if !b.is_empty() {
            tokens.extend_from_slice(&text.tokens[b]);
            tokens.push(sep);
            token_types.resize(tokens.len(), 1);
        }
        let seq_length = self.seq_length();
        let (mut targets, mut loss_mask) = (vec![0; seq_length], vec![0.0; seq_length]);
        let mut masked = tokens.clone();
        let tokenizer = &*self.samples.tokenizer;
        let masking = &self.samples.masking;
        masking.choose(&tokens, text.target_length, tokenizer, &mut random, |random, place| {
            masked[place] = self.replacement(tokens[place], random);
            targets[place] = tokens[place];
            loss_mask[place] = 1.0;
        });
        masked.resize(seq_length, pad);
        token_types.resize(seq_length, 0);
        Ok(BertSample {
            length: tokens.len(),
            tokens: masked,
            token_types,
            targets,
            loss_mask,
            is_next_random,
        })
    }
}

impl fmt::Debug for BertDataset {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("BertDataset");
        debug
            .field("config", &self.samples.config)
            .field("two_segments", &self.two_segments);
        debug.field("num_samples", &self.num_samples()).finish_non_exhaustive()
    }
}
