//! The names of a T5's parameters, those of Hugging Face's files where these have the same.

use super::DecoderBlockNames;
use crate::layers::{BlockNames, CausalSelfAttentionNames, CrossAttentionNames, MlpNames};

pub(super) const EMBEDDING: &str = "shared";
pub(super) const HEAD: &str = "lm_head";
pub(super) const ENCODER_BIAS: &str = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias";
pub(super) const DECODER_BIAS: &str = "decoder.block.0.layer.0.SelfAttention.relative_attention_bias";
pub(super) const ENCODER_NORM: &str = "encoder.final_layer_norm";
pub(super) const DECODER_NORM: &str = "decoder.final_layer_norm";

const ATTENTION: CausalSelfAttentionNames = CausalSelfAttentionNames {
    qkv: "qkv",
    output: "o",
};
const MLP: MlpNames = MlpNames {
    input: "wi",
    output: "wo",
};

pub(super) const ENCODER_BLOCK: BlockNames = BlockNames {
    attention_norm: "layer.0.layer_norm",
    attention: "layer.0.SelfAttention",
    attention_layers: ATTENTION,
    mlp_norm: "layer.1.layer_norm",
    mlp: "layer.1.DenseReluDense",
    mlp_layers: MLP,
};

pub(super) const DECODER_BLOCK: DecoderBlockNames = DecoderBlockNames {
    attention_norm: "layer.0.layer_norm",
    attention: "layer.0.SelfAttention",
    attention_layers: ATTENTION,
    cross_norm: "layer.1.layer_norm",
    cross: "layer.1.EncDecAttention",
    cross_layers: CrossAttentionNames {
        query: "q",
        key_value: "kv",
        output: "o",
    },
    mlp_norm: "layer.2.layer_norm",
    mlp: "layer.2.DenseReluDense",
    mlp_layers: MLP,
};

/// The scope of a block of the encoder.
pub(super) fn encoder_block(layer: usize) -> String {
    format!("encoder.block.{layer}")
}

/// The scope of a block of the decoder, numbered from 0.
pub(super) fn decoder_block(layer: usize) -> String {
    format!("decoder.block.{layer}")
}
