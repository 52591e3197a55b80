//! `TokenContext`: what the blocks of a model must know of the tokens of a forward pass.

use std::sync::Arc;

use cubecl_kernels::flash_attention::Documents;

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
    /// The documents that the samples consist of, each of which attends to itself alone; `None` if each sample is
    /// one.
    pub documents: Option<Documents>,
    /// The position of each token of the micro-batch; `None` if it is the token's place in its sample.
    pub positions: Option<Arc<[i32]>>,
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
            documents: None,
            positions: None,
        }
    }

    /// The same tokens in documents that are packed into the samples, as Megatron-LM's `--reset-attention-mask` takes
    /// them: attention is within each document. The same documents on every tensor-parallel rank.
    pub fn with_documents(self, documents: Option<Documents>) -> Self {
        Self { documents, ..self }
    }

    /// The same tokens at these positions, as Megatron-LM's `--reset-position-ids` takes them: rotary embeddings are of
    /// these. The same positions on every tensor-parallel rank.
    ///
    /// # Panics
    /// When there is not one for each token.
    pub fn with_positions(self, positions: Option<Arc<[i32]>>) -> Self {
        if let Some(positions) = &positions {
            let tokens = self.all.tokens.places().len();
            assert_eq!(positions.len(), tokens, "positions against tokens");
        }
        Self { positions, ..self }
    }
}
