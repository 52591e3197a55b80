//! [`GeneratorConfig`]: the limits of batch, step, queue and cache.

use super::error::GenerationError;
use super::pages::CacheConfig;

/// The limits of a [`Generator`](super::Generator), the same on every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneratorConfig {
    /// The cache of keys and values.
    pub cache: CacheConfig,
    /// The most samples in the batch.
    pub max_batch: usize,
    /// The tokens that a step computes, about: prompts beyond this are computed in pieces, so that the other samples of
    /// the batch do not wait for them.
    pub step_tokens: usize,
    /// The most samples that wait for a place in the batch or for pages, in addition to those that get both in the next
    /// step.
    pub max_waiting: usize,
}

impl GeneratorConfig {
    /// Returns limits for a batch of `max_batch` samples of up to `tokens` tokens each, prompt and output.
    pub fn new(max_batch: usize, tokens: usize) -> Self {
        Self {
            cache: CacheConfig::for_tokens(max_batch, tokens),
            max_batch,
            step_tokens: 512,
            max_waiting: 1024,
        }
    }

    pub(super) fn validate(&self) -> Result<(), GenerationError> {
        for (name, value) in [("max_batch", self.max_batch), ("step_tokens", self.step_tokens)] {
            if value == 0 {
                return Err(GenerationError::Zero { name });
            }
        }
        let CacheConfig { page_tokens, num_pages } = self.cache;
        // Places in the cache are 32-bit numbers on devices.
        let is_sound = page_tokens
            .checked_mul(num_pages)
            .is_some_and(|tokens| (1..1 << 31).contains(&tokens));
        if !is_sound {
            return Err(GenerationError::Cache { num_pages, page_tokens });
        }
        Ok(())
    }
}
