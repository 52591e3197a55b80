//! [`GenerationStage`]: what is asked of a part of a model that generates.

use burn::tensor::{Int, Tensor, backend::Backend};
use burn_megatron::collectives::CollectiveBackend;
use burn_megatron::tensor_parallel::{PageSizes, PagedKeyValues, PagedTokens};

/// The new tokens of a step, of all sequences that have some, one after the other.
#[derive(Clone, Debug)]
pub struct NewTokens<B: Backend> {
    /// `[tokens]`: which tokens they are.
    pub ids: Tensor<B, 1, Int>,
    /// Their positions, where their keys and values are stored, and what they attend to.
    pub paged: PagedTokens<B>,
}

/// A model that generates, or one of the stages that it was cut into; without autodiff.
///
/// Shape legend: `tokens` new tokens; activations are `[tokens, d_model]`, whole on every tensor-parallel rank.
pub trait GenerationStage<B: CollectiveBackend>: Sized {
    /// Returns the same stage, with the same parameters, for whole activations on every tensor-parallel rank: under
    /// sequence parallelism it took this rank's tokens.
    fn with_whole_tokens(self) -> Self;

    /// Returns empty pools of pages, one for each layer that is here.
    fn paged_key_values(&self, pages: PageSizes, device: &B::Device) -> Vec<PagedKeyValues<B>>;

    /// Computes this stage's output for new tokens, and stores their keys and values.
    ///
    /// # Shapes
    /// - `input`: `[tokens, d_model]`, what the stage before gave; none for the first one, which embeds the tokens
    /// - output: `[tokens, d_model]`
    ///
    /// # Panics
    /// When a collective fails, or the input is not what this stage takes.
    fn forward_new(
        &self,
        input: Option<Tensor<B, 2>>,
        tokens: &NewTokens<B>,
        caches: &mut [PagedKeyValues<B>],
    ) -> Tensor<B, 2>;

    /// Scores the vocabulary after tokens, on the last stage.
    ///
    /// # Shapes
    /// - `hidden`: `[rows, d_model]`, the output of some tokens
    /// - output: `[rows, padded_vocab_size / tp]`, this rank's part of the vocabulary
    ///
    /// # Panics
    /// When this is another stage.
    fn score(&self, hidden: Tensor<B, 2>) -> Tensor<B, 2>;
}
