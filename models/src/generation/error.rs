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
        rank: usize,
        tokens: usize,
        source: SamplingError,
    },
    /// A cache without room, or without end.
    #[error(
        "the cache must have at least one page of one token and fewer bytes than memory has, got \
         {num_pages} pages of {page_tokens} tokens"
    )]
    Cache { num_pages: usize, page_tokens: usize },
    #[error("{name} must be at least 1, got 0")]
    Zero { name: &'static str },
    #[error("the tokenizer has {tokenizer} tokens, and the model's vocabulary {model}: expected no more than those")]
    Vocabulary { tokenizer: usize, model: usize },
    /// A plan that does not fit what this rank knows.
    #[error("rank {rank}: the plan of rank 0 does not fit: {what}")]
    Plan { rank: usize, what: String },
}
