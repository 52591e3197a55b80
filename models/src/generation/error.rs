//! [`GenerationError`]: what can end a generator.

use burn_megatron::collectives::CollectiveError;

use super::sampling::SamplingError;

/// What can end a generator, on all ranks.
#[derive(Debug, thiserror::Error)]
pub enum GenerationError {
    /// A transfer, or a collective of a layer, failed.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    /// Scores that no token can be chosen by.
    #[error("rank {rank}: the scores after {tokens} tokens: {source}")]
    Scores {
        /// This rank.
        rank: usize,
        /// Tokens of the sequence.
        tokens: usize,
        /// What is wrong with them.
        source: SamplingError,
    },
    /// A cache without room, or without end.
    #[error(
        "the cache must have at least one page of one token and fewer bytes than memory has, got \
         {num_pages} pages of {page_tokens} tokens"
    )]
    Cache {
        /// Its pages.
        num_pages: usize,
        /// Tokens of a page.
        page_tokens: usize,
    },
    /// A setting of zero.
    #[error("{name} must be at least 1, got 0")]
    Zero {
        /// The setting.
        name: &'static str,
    },
    /// A tokenizer with more tokens than the model.
    #[error("the tokenizer has {tokenizer} tokens, and the model's vocabulary {model}: expected no more than those")]
    Vocabulary {
        /// Tokens of the tokenizer.
        tokenizer: usize,
        /// Those of the model.
        model: usize,
    },
    /// A plan that does not fit what this rank knows.
    #[error("rank {rank}: the plan of rank 0 does not fit: {what}")]
    Plan {
        /// This rank.
        rank: usize,
        /// What does not.
        what: String,
    },
}
