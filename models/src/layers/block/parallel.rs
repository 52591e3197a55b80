//! The parallel residual: `x + attention(norm(x)) + mlp(norm(x))`.

use burn::tensor::Tensor;
use burn_megatron::random::StepCoordinates;
use burn_megatron::tensor_parallel::{PagedKeyValues, PagedTokens};

use super::Block;
use crate::layers::{Sums, TokenContext};

impl Block {
    /// Applies the block. Where nothing is dropped, both outputs are added up before the one collective that sums the
    /// ranks' terms; a mask of each needs its whole output.
    pub(super) fn forward_parallel(&self, input: Tensor<2>, tokens: &TokenContext) -> Tensor<2> {
        let device = input.device();
        let dropouts = [&self.attention_dropout, &self.mlp_dropout];
        if !dropouts.iter().any(|dropout| dropout.is_active(&device)) {
            return self.joined(input, Some(&tokens.all), |normal| {
                self.attention.forward_heads(normal, tokens)
            });
        }
        let [stream, attention_input, mlp_input] = self.normed_twice(input);
        let attended = self.attention.forward_without_bias(attention_input, tokens);
        let sums = Sums::new(Some(tokens));
        let hidden = sums.add(stream, attended, &self.attention_dropout);
        let transformed = self.mlp.forward_for_sum(mlp_input, Some(&tokens.all));
        sums.add(hidden, transformed, &self.mlp_dropout)
    }

    /// Applies the block to the new tokens of sequences, whose earlier tokens are in `cache`.
    pub(super) fn forward_paged_parallel(
        &self,
        input: Tensor<2>,
        tokens: &PagedTokens,
        cache: &mut PagedKeyValues,
    ) -> Tensor<2> {
        self.joined(input, None, |normal| {
            self.attention.forward_paged_heads(normal, tokens, cache)
        })
    }

    /// Applies the block with what its heads give of the normed input, by one collective.
    fn joined(
        &self,
        input: Tensor<2>,
        step: Option<&StepCoordinates>,
        attend: impl FnOnce(Tensor<2>) -> Tensor<2>,
    ) -> Tensor<2> {
        let [stream, attention_input, mlp_input] = self.normed_twice(input);
        let (heads, hidden) = (attend(attention_input), self.mlp.hidden(mlp_input, step));
        let (sum, biases) = self
            .attention
            .output
            .forward_with(heads, &self.mlp.output, hidden, step);
        let bias = biases.into_iter().flatten().reduce(|first, second| first + second);
        Sums::new(None).add(stream, (sum, bias), &self.mlp_dropout)
    }

    /// The residual stream, and what attention and MLP take of it.
    fn normed_twice(&self, input: Tensor<2>) -> [Tensor<2>; 3] {
        let [stream, attention_input] = self.attention_norm.forward_of_stream(input);
        let [stream, mlp_input] = self.mlp_norm.forward_of_stream(stream);
        [stream, attention_input, mlp_input]
    }
}
