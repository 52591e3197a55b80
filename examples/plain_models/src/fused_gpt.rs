//! The GPT of `gpt`, of fused operations in place of burn's layers.
//!
//! Activations are a matrix of one row per token, as the fused operations take them: the tokens of a batch are one
//! dimension from the embeddings on, and are samples of tokens in attention alone.

use burn::nn::{Dropout, DropoutConfig, Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::prelude::*;
use cubecl_kernels::KernelError;
use cubecl_kernels::bias_gelu::bias_gelu;
use cubecl_kernels::cross_entropy::cross_entropy;
use cubecl_kernels::flash_attention::{AttentionMask, AttentionOptions, flash_attention};
use cubecl_kernels::linear::linear;
use cubecl_kernels::norm::{Addends, NormKind, NormParameters, add_norm, norm_of_stream};

use crate::gpt::PlainGptConfig;

const EPSILON: f64 = 1e-5;

/// A decoder-only language model with the parameters of `PlainGpt`, in its order.
///
/// Dropout is that of `PlainGpt` except for the weights of attention, which are not dropped.
#[derive(Module, Debug)]
pub struct FusedGpt {
    tokens: Embedding,
    positions: Embedding,
    layers: Vec<FusedLayer>,
    norm: LayerNorm,
    output: Linear,
    dropout: Dropout,
}

/// Attention and a feed-forward layer, each after a norm and added to what came in.
#[derive(Module, Debug)]
pub struct FusedLayer {
    attention_norm: LayerNorm,
    attention: FusedAttention,
    mlp_norm: LayerNorm,
    inner: Linear,
    outer: Linear,
    dropout: Dropout,
}

/// Causal attention.
#[derive(Module, Debug)]
pub struct FusedAttention {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    n_heads: usize,
}

/// A residual stream, and the norm that the next layer reads.
type Stream = [Tensor<2>; 2];

impl PlainGptConfig {
    /// The same model of fused operations.
    pub fn init_fused(&self, device: &Device) -> FusedGpt {
        FusedGpt {
            tokens: EmbeddingConfig::new(self.vocabulary, self.d_model).init(device),
            positions: EmbeddingConfig::new(self.seq_length, self.d_model).init(device),
            layers: (0..self.n_layers).map(|_| self.fused_layer(device)).collect(),
            norm: LayerNormConfig::new(self.d_model).init(device),
            output: LinearConfig::new(self.d_model, self.vocabulary)
                .with_bias(false)
                .init(device),
            dropout: DropoutConfig::new(self.dropout).init(),
        }
    }

    fn fused_layer(&self, device: &Device) -> FusedLayer {
        let d_model = self.d_model;
        let projection = || LinearConfig::new(d_model, d_model).init(device);
        FusedLayer {
            attention_norm: LayerNormConfig::new(d_model).init(device),
            attention: FusedAttention {
                query: projection(),
                key: projection(),
                value: projection(),
                output: projection(),
                n_heads: self.n_heads,
            },
            mlp_norm: LayerNormConfig::new(d_model).init(device),
            inner: LinearConfig::new(d_model, 4 * d_model).init(device),
            outer: LinearConfig::new(4 * d_model, d_model).init(device),
            dropout: DropoutConfig::new(self.dropout).init(),
        }
    }
}

impl FusedGpt {
    /// The mean loss of `[batch, seq]` tokens and their successors.
    pub fn loss(&self, tokens: Tensor<2, Int>, targets: Tensor<2, Int>) -> Result<Tensor<1>, KernelError> {
        let dims @ [batch, seq] = tokens.dims();
        let rows = batch * seq;
        let positions = Tensor::arange(0..seq as i64, &tokens.device());
        let positions = positions.reshape([1, seq]).repeat_dim(0, batch);
        let [tokens, positions] = [tokens, positions].map(|numbers| numbers.reshape([1, rows]));
        let embedded = self.tokens.forward(tokens) + self.positions.forward(positions);
        let hidden = self.dropout.forward(embedded);
        let [_, _, d_model] = hidden.dims();
        let norms = self.layers.iter().map(|layer| &layer.attention_norm);
        let mut norms = norms.chain([&self.norm]);
        let mut next_norm = || parameters(norms.next().expect("one before each layer, and one after the last"));
        let mut stream = norm_of_stream(hidden.reshape([rows, d_model]), next_norm())?;
        for layer in &self.layers {
            stream = layer.forward(stream, dims, next_norm())?;
        }
        let [_, normal] = stream;
        let logits = linear(normal, self.output.weight.val(), None)?;
        let [_, vocabulary] = logits.dims();
        let losses = cross_entropy(logits, targets.reshape([rows]), vocabulary, |statistics| statistics)?;
        Ok(losses.mean())
    }
}

impl FusedLayer {
    fn forward(
        &self,
        [hidden, normal]: Stream,
        dims: [usize; 2],
        next_norm: NormParameters,
    ) -> Result<Stream, KernelError> {
        let attended = self.attention.forward(normal, dims)?;
        let of_mlp = parameters(&self.mlp_norm);
        let [hidden, normal] = self.add(attended, &self.attention.output, hidden, of_mlp)?;
        let inner = linear(normal, self.inner.weight.val(), None)?;
        let inner = bias_gelu(inner, bias(&self.inner))?;
        let outer = linear(inner, self.outer.weight.val(), None)?;
        self.add(outer, &self.outer, hidden, next_norm)
    }

    /// Adds the output of a layer, without its bias yet, to the stream.
    fn add(
        &self,
        output: Tensor<2>,
        layer: &Linear,
        residual: Tensor<2>,
        norm: NormParameters,
    ) -> Result<Stream, KernelError> {
        let drops = self.dropout.prob > 0.0 && output.device().is_autodiff();
        let (input, bias) = if drops {
            let [rows, d_model] = output.dims();
            let whole = output + bias(layer).unsqueeze();
            let dropped = self.dropout.forward(whole.reshape([1, rows, d_model]));
            (dropped.reshape([rows, d_model]), None)
        } else {
            (output, Some(bias(layer)))
        };
        add_norm(
            Addends {
                input,
                bias,
                residual,
                dropout: None,
            },
            norm,
        )
    }
}

impl FusedAttention {
    /// The output of `[batch * seq, d_model]` rows, its bias not added yet.
    fn forward(&self, input: Tensor<2>, [batch, seq]: [usize; 2]) -> Result<Tensor<2>, KernelError> {
        let [rows, d_model] = input.dims();
        let d_head = d_model / self.n_heads;
        let heads = |layer: &Linear| {
            let projected = linear(input.clone(), layer.weight.val(), Some(bias(layer)))?;
            Ok(projected.reshape([batch, seq, self.n_heads, d_head]))
        };
        let options = AttentionOptions {
            mask: AttentionMask::Causal,
            scale: (d_head as f64).sqrt().recip(),
            dropout: None,
            documents: None,
            key_lengths: None,
            is_deterministic: true,
        };
        let attended = flash_attention(heads(&self.query)?, heads(&self.key)?, heads(&self.value)?, options)?;
        linear(attended.reshape([rows, d_model]), self.output.weight.val(), None)
    }
}

fn parameters(norm: &LayerNorm) -> NormParameters {
    NormParameters {
        kind: NormKind::Layer,
        weight: norm.gamma.val(),
        bias: norm.beta.as_ref().map(|beta| beta.val()),
        epsilon: EPSILON,
    }
}

fn bias(layer: &Linear) -> Tensor<1> {
    layer.bias.as_ref().expect("it was made with one").val()
}
