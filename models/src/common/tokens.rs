//! `TokenContext`: what the blocks of a model must know of the tokens at hand, made once per forward pass.

use burn::tensor::{Bool, Tensor, backend::Backend};
use burn_megatron::collectives::ProcessGroup;
use burn_megatron::random::StepCoordinates;

/// The tokens of a forward pass: their places, and which of them may attend to which.
#[derive(Clone, Debug)]
pub struct TokenContext<B: Backend> {
    /// The length of each sample.
    pub seq_length: usize,
    /// The places of all tokens of the micro-batch, for what happens inside tensor-parallel regions.
    pub all: StepCoordinates,
    /// The places of this rank's tokens, for what happens between them: a shard under sequence parallelism.
    pub local: StepCoordinates,
    /// `[1, 1, seq, seq]`, what is added to attention scores: −∞ where the key lies after the query, 0 elsewhere.
    pub causal_mask: Tensor<B, 4>,
}

impl<B: Backend> TokenContext<B> {
    /// Returns the context of whole samples of `seq_length` tokens.
    ///
    /// # Panics
    /// When `seq_length` does not divide the tokens, or under sequence parallelism the tensor-parallel size does not.
    pub fn new(
        step: &StepCoordinates,
        seq_length: usize,
        sequence_group: Option<&ProcessGroup>,
        device: &B::Device,
    ) -> Self {
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
            causal_mask: causal_mask(seq_length, device),
        }
    }
}

fn causal_mask<B: Backend>(seq_length: usize, device: &B::Device) -> Tensor<B, 4> {
    // burn's tril mask is false on and below the diagonal.
    let after_query = Tensor::<B, 2, Bool>::tril_mask([seq_length, seq_length], 0, device);
    Tensor::<B, 2>::zeros([seq_length, seq_length], device)
        .mask_fill(after_query, f64::NEG_INFINITY)
        .unsqueeze()
}
