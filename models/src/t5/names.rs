//! The names of a T5's parameters, those of Hugging Face's files where these have the same.

use crate::layers::{BlockNames, CausalSelfAttentionNames, CrossAttentionNames, MlpNames};

pub(super) const EMBEDDING: &str = "shared";
pub(super) const HEAD: &str = "lm_head";
pub(super) const ENCODER_BIAS: &str = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias";
pub(super) const DECODER_BIAS: &str = "decoder.block.0.layer.0.SelfAttention.relative_attention_bias";
pub(super) const ENCODER_NORM: &str = "encoder.final_layer_norm";
pub(super) const DECODER_NORM: &str = "decoder.final_layer_norm";

pub(super) const ATTENTION: CausalSelfAttentionNames = CausalSelfAttentionNames {
    qkv: "qkv",
    output: "o",
};
pub(super) const MLP: MlpNames = MlpNames {
    input: "wi",
    output: "wo",
};

pub(super) const ENCODER_BLOCK: BlockNames = BlockNames::of(
    ["layer.0.layer_norm", "layer.1.layer_norm"],
    ["layer.0.SelfAttention", "qkv", "o"],
    ["layer.1.DenseReluDense", "wi", "wo"],
);

pub(super) const CROSS_ATTENTION: CrossAttentionNames = CrossAttentionNames {
    query: "q",
    key_value: "kv",
    output: "o",
};

/// The scope of a block of the encoder.
pub(super) fn encoder_block(layer: usize) -> String {
    format!("encoder.block.{layer}")
}

/// The scope of a block of the decoder, numbered from 0.
pub(super) fn decoder_block(layer: usize) -> String {
    format!("decoder.block.{layer}")
}
