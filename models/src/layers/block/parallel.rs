//! The parallel residual: `x + attention(norm(x)) + mlp(norm(x))`.

use burn::tensor::Tensor;
use burn_megatron::collectives::CollectiveBackend;
use burn_megatron::random::{RowDropout, StepCoordinates};
use burn_megatron::tensor_parallel::{PagedKeyValues, PagedTokens};
use cubecl_kernels::Kernels;
use cubecl_kernels::norm::Addends;

use super::{Block, add_dropped};
use crate::layers::TokenContext;

impl<B: CollectiveBackend> Block<B> {
    /// Applies the block. Where nothing is dropped, both outputs are added up before the one collective that sums the
    /// ranks' terms; a mask of each needs its whole output.
    pub(super) fn forward_parallel(&self, input: Tensor<B, 2>, tokens: &TokenContext) -> Tensor<B, 2> {
        let device = input.device();
        let dropouts = [&self.attention_dropout, &self.mlp_dropout];
        if !dropouts.iter().any(|dropout| dropout.is_active::<B>(&device)) {
            return self.joined(input, Some(&tokens.all), |normal| {
                self.attention.forward_heads(normal, tokens)
            });
        }
        let [stream, attention_input, mlp_input] = self.normed_twice(input);
        match self.kernels {
            Kernels::Fused => {
                let [of_attention, of_mlp] = dropouts.map(|dropout| dropout.of_rows::<B>(&tokens.local, &device));
                let attended = self.attention.forward_without_bias(attention_input, tokens);
                let hidden = fused_sum(attended, stream, of_attention);
                fused_sum(
                    self.mlp.forward_without_bias(mlp_input, Some(&tokens.all)),
                    hidden,
                    of_mlp,
                )
            }
            Kernels::Plain => {
                let [of_attention, of_mlp] = dropouts;
                let attended = self.attention.forward(attention_input, tokens);
                let transformed = self.mlp.forward(mlp_input, Some(&tokens.all));
                stream + of_attention.forward(attended, &tokens.local) + of_mlp.forward(transformed, &tokens.local)
            }
        }
    }

    /// Applies the block to the new tokens of sequences, whose earlier tokens are in `cache`.
    pub(super) fn forward_paged_parallel(
        &self,
        input: Tensor<B, 2>,
        tokens: &PagedTokens<B>,
        cache: &mut PagedKeyValues<B>,
    ) -> Tensor<B, 2> {
        self.joined(input, None, |normal| {
            self.attention.forward_paged_heads(normal, tokens, cache)
        })
    }

    /// Applies the block with what its heads give of the normed input, by one collective.
    fn joined(
        &self,
        input: Tensor<B, 2>,
        step: Option<&StepCoordinates>,
        attend: impl FnOnce(Tensor<B, 2>) -> Tensor<B, 2>,
    ) -> Tensor<B, 2> {
        let [stream, attention_input, mlp_input] = self.normed_twice(input);
        let (heads, hidden) = (attend(attention_input), self.mlp.hidden(mlp_input, step));
        let (sum, biases) = self
            .attention
            .output
            .forward_with(heads, &self.mlp.output, hidden, step);
        let bias = biases.into_iter().flatten().reduce(|first, second| first + second);
        match self.kernels {
            Kernels::Fused => fused_sum((sum, bias), stream, None),
            Kernels::Plain => match bias {
                Some(bias) => stream + sum + bias.unsqueeze(),
                None => stream + sum,
            },
        }
    }

    /// The residual stream, and what attention and MLP take of it.
    fn normed_twice(&self, input: Tensor<B, 2>) -> [Tensor<B, 2>; 3] {
        let [stream, attention_input] = self.attention_norm.forward_of_stream(input);
        let [stream, mlp_input] = self.mlp_norm.forward_of_stream(stream);
        [stream, attention_input, mlp_input]
    }
}

/// Adds an output, with the bias that is yet to be added, to the residual stream.
fn fused_sum<B: CollectiveBackend>(
    (input, bias): (Tensor<B, 2>, Option<Tensor<B, 1>>),
    residual: Tensor<B, 2>,
    dropout: Option<RowDropout>,
) -> Tensor<B, 2> {
    add_dropped(Addends {
        input,
        bias,
        residual,
        dropout,
    })
}
