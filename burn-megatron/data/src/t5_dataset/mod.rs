//! T5's samples: a text with spans left out for the encoder, and the spans for the decoder.

#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::index_cache::IndexCache;
use crate::indexed_dataset::SentenceDocuments;
use crate::masked_dataset::{MaskedDatasetConfig, MaskedSamples, MaskingConfig, SampleShape, needed};
use crate::samples::{SampleError, SampleSet};
use crate::tokenizer::{Token, Tokenizer};

/// What a data set of T5 is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct T5DatasetConfig {
    /// Length (the encoder's), number and seed of the samples, and what is masked.
    pub samples: MaskedDatasetConfig,
    /// Tokens of a sample in the decoder (`--decoder-seq-length`).
    pub decoder_seq_length: usize,
}

impl T5DatasetConfig {
    /// Returns the configuration for at least `num_samples` samples (`None`: one epoch): seed 1234, one sample in ten
    /// short, masks as [`MaskingConfig::t5`].
    pub fn new(seq_length: usize, decoder_seq_length: usize, num_samples: Option<u64>) -> Self {
        Self {
            samples: MaskedDatasetConfig::new(seq_length, num_samples, MaskingConfig::t5()),
            decoder_seq_length,
        }
    }
}

/// A sample of T5.
///
/// Of the text `a b c d e` with the spans `b c` and `e` masked the encoder sees `a <0> d <1>`, the decoder
/// `<bos> <0> b c <1> e`, and its targets are `<0> b c <1> e <eos>`.
#[derive(Debug, Clone, PartialEq)]
pub struct T5Sample {
    /// The text with a sentinel for each span, `[seq_length]`.
    pub encoder_tokens: Vec<Token>,
    /// Tokens of the encoder before the padding.
    pub encoder_length: usize,
    /// The begin of a sequence, and each sentinel with its span, `[decoder_seq_length]`.
    pub decoder_tokens: Vec<Token>,
    /// The same, one token ahead, with the end of a sequence; 0 in the padding, `[decoder_seq_length]`.
    pub targets: Vec<Token>,
    /// 1 before the padding, 0 in it, `[decoder_seq_length]`.
    pub loss_mask: Vec<f32>,
    /// Tokens of the decoder before the padding.
    pub decoder_length: usize,
}

/// Samples of T5 from documents, of sentences or whole.
///
/// A document is cut into samples of about `seq_length − 2` tokens; what is too long is cut at the end. Spans are the
/// n-grams of words that [`MaskingConfig`] chooses. If the sentinels or the decoder's tokens do not suffice for all,
/// only the first that fit are masked and the others stay in the text, where Megatron-LM fails.
///
/// # Reference
/// Raffel et al. 2019, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer",
/// arXiv:1910.10683. Megatron-LM's `T5MaskedWordPieceDataset`, whose samples, order and spans these are.
#[derive(Clone)]
pub struct T5Dataset {
    samples: MaskedSamples,
    decoder_seq_length: usize,
    added: AddedTokens,
}

#[derive(Debug, Clone)]
struct AddedTokens {
    bos: Token,
    eos: Token,
    pad: Token,
    sentinels: Vec<Token>,
}

impl T5Dataset {
    /// Returns the data set of the documents `range`. Its order is made by this process and kept, or mapped from
    /// `cache`, where it is made first if it is not there.
    ///
    /// The decoder begins with the tokenizer's begin of a sequence, else with `[CLS]`, else, as T5's own, with padding.
    /// Its targets end with the end of a sequence, else with `[SEP]`, else with the end of a document.
    ///
    /// # Errors
    /// A setting is outside its range, the tokenizer has no sentinels (`<extra_id_0>`), padding, or end, no document
    /// gives a sample; as of the cache.
    ///
    /// # Panics
    /// If `range` ends after the last document.
    pub fn new(
        config: &T5DatasetConfig,
        documents: Arc<dyn SentenceDocuments>,
        range: Range<usize>,
        tokenizer: Arc<dyn Tokenizer>,
        cache: Option<&IndexCache>,
    ) -> Result<Self, SampleError> {
        let roles = tokenizer.token_roles();
        let pad = needed(roles.pad, "T5", "a token for padding ([PAD], <pad>)")?;
        let eos = roles.eos.or(roles.sep).or(tokenizer.end_of_document());
        let sentinels = Some(&roles.sentinels).filter(|sentinels| !sentinels.is_empty());
        let added = AddedTokens {
            bos: roles.bos.or(roles.cls).unwrap_or(pad),
            eos: needed(eos, "T5", "a token that ends a sequence ([EOS], </s>)")?,
            pad,
            sentinels: needed(sentinels.cloned(), "T5", "sentinels (<extra_id_0>, <extra_id_1>, …)")?,
        };
        // A begin, a sentinel and a token.
        if config.decoder_seq_length < 3 {
            let length = config.decoder_seq_length;
            return Err(SampleError::setting(
                "decoder's length (--decoder-seq-length)",
                "at least 3",
                length,
            ));
        }
        let shape = SampleShape {
            added_tokens: 2,
            min_sentences: 1,
        };
        Ok(Self {
            samples: MaskedSamples::new(&config.samples, shape, documents, &range, tokenizer, cache)?,
            decoder_seq_length: config.decoder_seq_length,
            added,
        })
    }

    /// Returns the tokens of the decoder.
    pub fn decoder_seq_length(&self) -> usize {
        self.decoder_seq_length
    }
}

impl SampleSet for T5Dataset {
    type Sample = T5Sample;

    fn num_samples(&self) -> u64 {
        self.samples.num_samples()
    }

    fn seq_length(&self) -> usize {
        self.samples.config.seq_length
    }

    fn read(&self, index: u64) -> Result<T5Sample, SampleError> {
        let (mut text, mut random) = self.samples.read(index)?;
        text.tokens.truncate(text.target_length);
        let tokens = &text.tokens;
        let tokenizer = &*self.samples.tokenizer;
        let masking = &self.samples.masking;
        let spans = masking.choose(tokens, text.target_length, tokenizer, &mut random, |_, _| ());

        let mut encoder_tokens = vec![];
        let mut spans_in_order = vec![];
        let mut next = 0;
        for (span, &sentinel) in spans.iter().zip(&self.added.sentinels) {
            // The begin and the spans so far, with a sentinel each, and this one.
            if 1 + spans_in_order.len() + 1 + span.len() > self.decoder_seq_length {
                break;
            }
            let ([first, ..], [.., last]) = (span.as_slice(), span.as_slice()) else {
                continue;
            };
            encoder_tokens.extend_from_slice(&tokens[next..*first]);
            encoder_tokens.push(sentinel);
            spans_in_order.push(sentinel);
            spans_in_order.extend(span.iter().map(|&place| tokens[place]));
            next = last + 1;
        }
        encoder_tokens.extend_from_slice(&tokens[next..]);
        let AddedTokens { bos, eos, pad, .. } = self.added;
        let mut decoder_tokens = [&[bos], spans_in_order.as_slice()].concat();
        let mut targets = [spans_in_order.as_slice(), &[eos]].concat();
        let (encoder_length, decoder_length) = (encoder_tokens.len(), decoder_tokens.len());
        let mut loss_mask = vec![1.0; decoder_length];
        encoder_tokens.resize(self.seq_length(), pad);
        decoder_tokens.resize(self.decoder_seq_length, pad);
        targets.resize(self.decoder_seq_length, 0);
        loss_mask.resize(self.decoder_seq_length, 0.0);
        Ok(T5Sample {
            encoder_tokens,
            encoder_length,
            decoder_tokens,
            targets,
            loss_mask,
            decoder_length,
        })
    }
}

impl fmt::Debug for T5Dataset {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("T5Dataset");
        debug.field("config", &self.samples.config);
        debug.field("decoder_seq_length", &self.decoder_seq_length);
        debug.field("num_samples", &self.num_samples()).finish_non_exhaustive()
    }
}
