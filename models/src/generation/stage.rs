//! [`GenerationStage`]: what is asked of a part of a model that generates.

use burn::tensor::{Device, Int, Tensor};
use burn_megatron::tensor_parallel::{PageSizes, PagedKeyValues, PagedTokens};

/// The new tokens of a step, of all sequences that have some, one after the other.
#[derive(Clone, Debug)]
pub struct NewTokens {
    /// `[tokens]`: which tokens they are.
    pub ids: Tensor<1, Int>,
    /// Their positions, where their keys and values are stored, and what they attend to.
    pub paged: PagedTokens,
}

/// A model that generates, or one of the stages that it was cut into; without autodiff.
///
/// Shape legend: `tokens` new tokens; activations are `[tokens, d_model]`, whole on every tensor-parallel rank.
pub trait GenerationStage: Sized {
    /// Returns the same stage, with the same parameters, for whole activations on every tensor-parallel rank: under
    /// sequence parallelism it took this rank's tokens.
    fn with_whole_tokens(self) -> Self;

    /// Returns empty pools of pages, one for each layer that is here.
    fn paged_key_values(&self, pages: PageSizes, device: &Device) -> Vec<PagedKeyValues>;

    /// Computes this stage's output for new tokens, and stores their keys and values.
    ///
    /// # Shapes
    /// - `input`: `[tokens, d_model]`, what the stage before gave; none for the first one, which embeds the tokens
    /// - output: `[tokens, d_model]`
    ///
    /// # Panics
    /// When a collective fails, or the input is not what this stage takes.
    fn forward_new(&self, input: Option<Tensor<2>>, tokens: &NewTokens, caches: &mut [PagedKeyValues]) -> Tensor<2>;

    /// Scores the vocabulary after tokens, on the last stage.
    ///
    /// # Shapes
    /// - `hidden`: `[rows, d_model]`, the output of some tokens
    /// - output: `[rows, padded_vocab_size / tp]`, this rank's part of the vocabulary
    ///
    /// # Panics
    /// When this is another stage.
    fn score(&self, hidden: Tensor<2>) -> Tensor<2>;
}
