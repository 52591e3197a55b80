//! `NeoxConfig`: the sizes of a GPT-NeoX.

use burn::config::Config;

use crate::decoder::BiasedSizes;
use crate::layers::{LayerRecompute, MlpActivation};
use crate::vocabulary::padded_vocab_size;

/// Configuration of a GPT-NeoX.
#[derive(Config, Debug, PartialEq)]
pub struct NeoxConfig {
    /// The number of blocks.
    pub n_layers: usize,
    /// The size of each token.
    pub d_model: usize,
    /// The number of attention heads, which divides `d_model`.
    pub n_heads: usize,
    /// The longest sequence.
    pub max_seq_length: usize,
    /// The size of the vocabulary, without padding.
    pub vocab_size: usize,
    /// The size of the vocabulary with padding, which the tensor-parallel size divides; the next multiple of
    /// `128 * tensor_parallel_size` if not given. Padding changes no result.
    pub padded_vocab_size: Option<usize>,
    /// The size of the MLP's hidden layer; `4 * d_model` if not given.
    pub d_hidden: Option<usize>,
    /// The share of each head's elements that are turned, the first ones, from above 0 to 1.
    #[config(default = 0.25)]
    pub rotary_percent: f64,
    /// What the wavelengths of the rotary embedding are powers of.
    #[config(default = 10000.0)]
    pub rotary_base: f64,
    /// Whether attention and MLP read the residual stream at once, and not one after the other.
    #[config(default = true)]
    pub parallel_residual: bool,
    /// Whether GELU is computed by tanh, as GPT-NeoX-20B's, and not by the error function.
    #[config(default = false)]
    pub tanh_gelu: bool,
    /// Whether the output head is the token embedding.
    #[config(default = false)]
    pub tied_embeddings: bool,
    /// The probability with which an element of an embedding, an attention's or an MLP's output becomes zero.
    #[config(default = 0.0)]
    pub hidden_dropout: f64,
    /// The probability with which an attention weight becomes zero.
    #[config(default = 0.0)]
    pub attention_dropout: f64,
    /// Which blocks keep their input only, and run again before their backward pass. It changes no bit of the result.
    #[config(default = "LayerRecompute::Nothing")]
    pub layer_recompute: LayerRecompute,
    /// The most tokens whose logits are in one buffer; those of 1 GiB if not given.
    pub logit_chunk_tokens: Option<usize>,
    /// The number that norms add to the variance.
    #[config(default = 1e-5)]
    pub norm_epsilon: f64,
    /// The standard deviation of weights and embeddings; projections back to `d_model` have it divided by
    /// `√(2 * n_layers)`.
    #[config(default = 0.02)]
    pub init_deviation: f64,
}

impl NeoxConfig {
    /// The size of the MLP's hidden layer.
    pub fn hidden_size(&self) -> usize {
        self.d_hidden.unwrap_or(4 * self.d_model)
    }

    /// The elements of each head that are turned.
    pub fn rotated(&self) -> usize {
        let head_size = self.d_model / self.n_heads;
        (head_size as f64 * self.rotary_percent) as usize
    }

    pub(super) fn activation(&self) -> MlpActivation {
        if self.tanh_gelu {
            MlpActivation::Gelu
        } else {
            MlpActivation::GeluErf
        }
    }

    pub(super) fn biased_sizes(&self) -> BiasedSizes {
        BiasedSizes {
            n_layers: self.n_layers,
            d_model: self.d_model,
            n_heads: self.n_heads,
            d_hidden: self.hidden_size(),
            max_seq_length: self.max_seq_length,
            vocab_size: self.vocab_size,
            logit_chunk_tokens: self.logit_chunk_tokens,
        }
    }

    /// Returns the size of the vocabulary with padding.
    pub fn padded_vocab(&self, tensor_parallel_size: usize) -> usize {
        padded_vocab_size(self.vocab_size, self.padded_vocab_size, tensor_parallel_size)
    }
}
