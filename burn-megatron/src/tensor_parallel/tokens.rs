//! `TokenContext`: what the blocks of a model must know of the tokens of a forward pass.

use crate::collectives::ProcessGroup;
use crate::random::StepCoordinates;

/// The tokens of a forward pass: how long the samples are, and where the tokens are in the run.
#[derive(Clone, Debug)]
pub struct TokenContext {
    /// The length of each sample.
    pub seq_length: usize,
    /// The places of all tokens of the micro-batch, for what happens inside tensor-parallel regions.
    pub all: StepCoordinates,
    /// The places of this rank's tokens, for what happens between them: a shard under sequence parallelism.
    pub local: StepCoordinates,
}

impl TokenContext {
    /// Returns the context of whole samples of `seq_length` tokens.
    ///
    /// # Panics
    /// When `seq_length` does not divide the tokens, or under sequence parallelism the tensor-parallel size does not.
    pub fn new(step: &StepCoordinates, seq_length: usize, sequence_group: Option<&ProcessGroup>) -> Self {
        let tokens = step.tokens.places().len();
        assert!(
            tokens.is_multiple_of(seq_length),
            "{tokens} tokens are not whole samples of {seq_length}"
        );
        let local = match sequence_group {
            Some(group) => step.shard(group.rank(), group.size()),
            None => step.clone(),
        };
        Self {
            seq_length,
            all: step.clone(),
            local,
        }
    }
}
