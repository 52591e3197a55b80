//! `BertConfig`: the sizes of a BERT.

use burn::config::Config;

use serde::{Deserialize, Serialize};

use crate::decoder::BiasedSizes;
use crate::layers::{LayerRecompute, MlpActivation};
use crate::vocabulary::padded_vocab_size;

/// Where norms are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NormOrder {
    /// Before attention and MLP: `x + f(norm(x))`.
    Before,
    /// After the residual sums: `norm(x + f(x))`.
    After,
}

#[derive(Config, Debug, PartialEq)]
pub struct BertConfig {
    pub n_layers: usize,
    pub d_model: usize,
    /// The number of attention heads, which divides `d_model`.
    pub n_heads: usize,
    pub max_seq_length: usize,
    /// The size of the vocabulary, without padding.
    pub vocab_size: usize,
    /// The size of the vocabulary with padding, which the tensor-parallel size divides; the next multiple of
    /// `128 * tensor_parallel_size` if not given. Padding changes no result.
    pub padded_vocab_size: Option<usize>,
    /// The size of the MLP's hidden layer; `4 * d_model` if not given.
    pub d_hidden: Option<usize>,
    /// The number of token types: sentences of a pair.
    #[config(default = 2)]
    pub token_types: usize,
    /// Where the norms are. With [`NormOrder::Before`] there is one more after the last block, with
    /// [`NormOrder::After`] one after the embeddings.
    #[config(default = "NormOrder::Before")]
    pub order: NormOrder,
    /// What is between the MLP's layers, and after the layer before the head.
    #[config(default = "MlpActivation::GeluErf")]
    pub activation: MlpActivation,
    /// Whether the model tells if the second sentence of a pair follows the first.
    #[config(default = true)]
    pub tells_pairs: bool,
    /// Whether the output head is the token embedding.
    #[config(default = true)]
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
    #[config(default = 1e-12)]
    pub norm_epsilon: f64,
    /// The standard deviation of weights and embeddings; projections back to `d_model` have it divided by
    /// `√(2 * n_layers)`.
    #[config(default = 0.02)]
    pub init_deviation: f64,
}

impl BertConfig {
    pub fn hidden_size(&self) -> usize {
        self.d_hidden.unwrap_or(4 * self.d_model)
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

    pub fn padded_vocab(&self, tensor_parallel_size: usize) -> usize {
        padded_vocab_size(self.vocab_size, self.padded_vocab_size, tensor_parallel_size)
    }
}
