//! `LlamaConfig`: the sizes of a Llama.

use burn::config::Config;
use cubecl_kernels::rotary::tables::RotaryScaling;

use crate::layers::LayerRecompute;
use crate::vocabulary::padded_vocab_size;

/// Configuration of a Llama.
#[derive(Config, Debug, PartialEq)]
pub struct LlamaConfig {
    /// The number of blocks.
    pub n_layers: usize,
    /// The size of each token.
    pub d_model: usize,
    /// The number of query heads.
    pub n_heads: usize,
    /// The number of key heads, and of value heads, which divides that of query heads.
    pub n_kv_heads: usize,
    /// The size of the MLP's hidden layer.
    pub d_hidden: usize,
    /// The longest sequence.
    pub max_seq_length: usize,
    /// The size of the vocabulary, without padding.
    pub vocab_size: usize,
    /// The size of the vocabulary with padding, which the tensor-parallel size divides; the next multiple of
    /// `128 * tensor_parallel_size` if not given. Padding changes no result.
    pub padded_vocab_size: Option<usize>,
    /// The size of a head; `d_model / n_heads` if not given.
    pub d_head: Option<usize>,
    /// What the wavelengths of the rotary embedding are powers of.
    #[config(default = 10000.0)]
    pub rotary_base: f64,
    /// How its frequencies are changed for longer texts.
    #[config(default = "RotaryScaling::None")]
    pub rotary_scaling: RotaryScaling,
    /// Whether the query-key-value projection has a bias, as Qwen2's.
    #[config(default = false)]
    pub qkv_bias: bool,
    /// Whether each query head and each key head is normed before it is turned, as Qwen3's.
    #[config(default = false)]
    pub qk_norm: bool,
    /// How many keys a query sees at most, itself among them, as in Mistral's earlier versions; all up to itself if not
    /// given.
    pub window: Option<usize>,
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
    /// The number that norms add to the mean of the squares.
    #[config(default = 1e-5)]
    pub norm_epsilon: f64,
    /// The standard deviation of weights and embeddings; projections back to `d_model` have it divided by
    /// `√(2 * n_layers)`.
    #[config(default = 0.02)]
    pub init_deviation: f64,
}

impl LlamaConfig {
    /// The size of a head.
    pub fn head_size(&self) -> usize {
        self.d_head.unwrap_or(self.d_model / self.n_heads)
    }

    /// The query heads that share a key head.
    pub fn queries_per_group(&self) -> usize {
        self.n_heads / self.n_kv_heads
    }

    /// The columns of the query-key-value projection.
    pub fn qkv_width(&self) -> usize {
        (self.n_heads + 2 * self.n_kv_heads) * self.head_size()
    }

    /// Returns the size of the vocabulary with padding.
    pub fn padded_vocab(&self, tensor_parallel_size: usize) -> usize {
        padded_vocab_size(self.vocab_size, self.padded_vocab_size, tensor_parallel_size)
    }
}
