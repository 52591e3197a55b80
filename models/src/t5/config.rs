//! `T5Config`: the sizes of a T5.

use burn::config::Config;

use crate::layers::{DistanceBuckets, LayerRecompute, MlpActivation};
use crate::vocabulary::padded_vocab_size;

#[derive(Config, Debug, PartialEq)]
pub struct T5Config {
    pub n_encoder_layers: usize,
    pub n_decoder_layers: usize,
    pub d_model: usize,
    pub n_heads: usize,
    pub d_head: usize,
    pub d_hidden: usize,
    /// The longest text of the encoder. Positions are relative: it changes no parameter.
    pub max_seq_length: usize,
    /// The longest text of the decoder.
    pub decoder_seq_length: usize,
    /// The size of the vocabulary, without padding.
    pub vocab_size: usize,
    /// The size of the vocabulary with padding, which the tensor-parallel size divides; the next multiple of
    /// `128 * tensor_parallel_size` if not given. Padding changes no result.
    pub padded_vocab_size: Option<usize>,
    /// Ranges of distances that have a number in common.
    #[config(default = 32)]
    pub distance_buckets: usize,
    /// The distance from where on all have the same number.
    #[config(default = 128)]
    pub max_distance: usize,
    /// The activation between the MLP's layers: ReLU, or GeGLU as in T5 1.1.
    #[config(default = "MlpActivation::Relu")]
    pub activation: MlpActivation,
    /// True if the output head is the token embedding; T5 1.1 has one of its own.
    #[config(default = true)]
    pub tied_embeddings: bool,
    /// True if hidden states are divided by `√d_model` before the head, as where it is the token embedding.
    #[config(default = true)]
    pub scales_head: bool,
    /// The probability with which an element of an embedding, a sublayer's output or a final norm's becomes zero.
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
    #[config(default = 1e-6)]
    pub norm_epsilon: f64,
    /// The standard deviation of weights and embeddings; projections back to `d_model` have it divided by `√(2 * L)`
    /// with all layers `L`.
    #[config(default = 0.02)]
    pub init_deviation: f64,
}

impl T5Config {
    /// The number of blocks of both halves.
    pub fn num_blocks(&self) -> usize {
        self.n_encoder_layers + self.n_decoder_layers
    }

    /// Which distances have a number in common, in the encoder or in the decoder.
    pub fn buckets(&self, is_encoder: bool) -> DistanceBuckets {
        DistanceBuckets {
            count: self.distance_buckets,
            max_distance: self.max_distance,
            is_bidirectional: is_encoder,
        }
    }

    pub fn padded_vocab(&self, tensor_parallel_size: usize) -> usize {
        padded_vocab_size(self.vocab_size, self.padded_vocab_size, tensor_parallel_size)
    }
}
