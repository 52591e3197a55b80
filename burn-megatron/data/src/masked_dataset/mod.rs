//! What data sets of masked samples share: which sentences a sample has, and which of its tokens are masked.
//!
//! Every draw of a sample is of a generator of its own, numpy's `RandomState` seeded with `seed + index`: a sample does
//! not depend on the parallel layout, on who reads it, or on what was read before. These are Megatron-LM's draws, in
//! its order, so masks are the same as well as the order of samples.

mod draws;
mod masking;
mod sample_map;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use crate::index_cache::IndexCache;
use crate::indexed_dataset::SentenceDocuments;
use crate::samples::SampleError;
use crate::tokenizer::{Token, Tokenizer};

pub(crate) use draws::RandomState;
pub(crate) use masking::Masking;
pub use masking::{MaskingConfig, NgramLengths};
use sample_map::{SampleMap, SampleMapConfig};

/// What BERT's and T5's data sets are made of.
#[derive(Debug, Clone, PartialEq)]
pub struct MaskedDatasetConfig {
    /// Tokens of a sample (`--seq-length`), with those that are added to the text.
    pub seq_length: usize,
    /// Samples wanted: there can be more, up to the end of the last epoch. `None` for those of one epoch.
    pub num_samples: Option<u64>,
    /// Seed of the order of samples and of the masks.
    pub seed: u32,
    /// Share of the samples for which fewer tokens are wanted (`--short-seq-prob`), 0 for none: one in `round(1/p)`, of
    /// a length from 2 to the longest.
    pub short_sequence_probability: f64,
    /// What is masked.
    pub masking: MaskingConfig,
}

impl MaskedDatasetConfig {
    /// Returns the configuration for at least `num_samples` samples: seed 1234, one in ten short.
    pub(crate) fn new(seq_length: usize, num_samples: Option<u64>, masking: MaskingConfig) -> Self {
        Self {
            seq_length,
            num_samples,
            seed: 1234,
            short_sequence_probability: 0.1,
            masking,
        }
    }
}

/// What a kind of masked samples asks of [`MaskedSamples`].
#[derive(Clone, Copy)]
pub(crate) struct SampleShape {
    /// Tokens that are added to those of the text.
    pub(crate) added_tokens: usize,
    /// Sentences that a sample has at least.
    pub(crate) min_sentences: usize,
}

/// The text of masked samples, in training order, and what masks it.
#[derive(Clone)]
pub(crate) struct MaskedSamples {
    pub(crate) config: MaskedDatasetConfig,
    pub(crate) tokenizer: Arc<dyn Tokenizer>,
    pub(crate) masking: Masking,
    shape: SampleShape,
    documents: Arc<dyn SentenceDocuments>,
    map: SampleMap,
}

/// The sentences of a sample, one after the other.
pub(crate) struct Text {
    pub(crate) tokens: Vec<Token>,
    pub(crate) sentence_ends: Vec<usize>,
    /// Tokens that are wanted of it.
    pub(crate) target_length: usize,
}

impl MaskedSamples {
    /// Makes the order of samples, in memory or in the cache.
    pub(crate) fn new(
        config: &MaskedDatasetConfig,
        shape: SampleShape,
        documents: Arc<dyn SentenceDocuments>,
        range: &Range<usize>,
        tokenizer: Arc<dyn Tokenizer>,
        cache: Option<&IndexCache>,
    ) -> Result<Self, SampleError> {
        let masking = Masking::new(&config.masking, &tokenizer.token_roles())?;
        let shortest = shape.added_tokens + 2;
        if config.seq_length < shortest {
            let rule = format!(
                "at least {shortest}, of which {} are added to the text",
                shape.added_tokens
            );
            return Err(SampleError::setting(
                "sequence length (--seq-length)",
                rule,
                config.seq_length,
            ));
        }
        let map = SampleMapConfig {
            max_length: config.seq_length - shape.added_tokens,
            min_sentences: shape.min_sentences,
            short_sequence_probability: config.short_sequence_probability,
            num_samples: config.num_samples,
            seed: config.seed,
        };
        Ok(Self {
            config: config.clone(),
            map: SampleMap::new(&map, &*documents, range, cache)?,
            tokenizer,
            masking,
            shape,
            documents,
        })
    }

    pub(crate) fn num_samples(&self) -> u64 {
        self.map.len() as u64
    }

    /// Returns the text of a sample, and the generator of its draws.
    pub(crate) fn read(&self, index: u64) -> Result<(Text, RandomState), SampleError> {
        let (range, target_length) = self.map.sample(index)?;
        let sentences = self.documents.sentences();
        let wrong_index = |place| SampleError::WrongIndex { index, place };
        if range.len() < self.shape.min_sentences || range.end > sentences.num_documents() {
            return Err(wrong_index(format!("sentences {range:?}")));
        }
        if !(2..=self.config.seq_length - self.shape.added_tokens).contains(&target_length) {
            return Err(wrong_index(format!("a sample of {target_length} tokens")));
        }
        let (mut tokens, mut sentence_ends) = (vec![], vec![]);
        for sentence in range {
            sentences.read(sentence, 0..sentences.document_length(sentence), &mut tokens);
            sentence_ends.push(tokens.len());
        }
        let vocabulary_size = self.tokenizer.vocabulary_size();
        if let Some(&token) = tokens.iter().find(|&&token| token as usize >= vocabulary_size) {
            return Err(SampleError::UnknownToken {
                index,
                token,
                vocabulary_size,
            });
        }
        // Of 2^32 seeds, as numpy takes them.
        let random = RandomState::new(self.config.seed.wrapping_add(index as u32));
        let text = Text {
            tokens,
            sentence_ends,
            target_length,
        };
        Ok((text, random))
    }
}

/// Returns the token of a role, or all of them.
pub(crate) fn needed<T>(token: Option<T>, samples: &'static str, role: &'static str) -> Result<T, SampleError> {
    token.ok_or(SampleError::MissingToken { samples, role })
}
