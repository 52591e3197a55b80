//! Llama as a [`DecoderConfig`].

use burn::tensor::backend::Backend;
use burn_megatron::context::ParallelContext;
use burn_megatron::pipeline_parallel::LayerLayout;
use cubecl_kernels::rotary::RotaryLayout;

use super::LlamaConfig;
use crate::decoder::{Decoder, DecoderConfig, DecoderNames, Positions, weight_inits};
use crate::layers::{
    BlockConfig, BlockNames, CausalSelfAttentionConfig, CausalSelfAttentionNames, HeadOrder, MlpActivation, MlpConfig,
    MlpNames, ModelError, NormType, RotaryConfig,
};
use crate::model_config::ModelConfig;

/// Names of Hugging Face's Llama.
const NAMES: DecoderNames = DecoderNames {
    token_embedding: "embed_tokens",
    // There is neither.
    position_embedding: "",
    embedding_norm: None,
    blocks: "layers",
    block: BlockNames {
        attention_norm: "input_layernorm",
        attention: "self_attn",
        attention_layers: CausalSelfAttentionNames {
            qkv: "qkv_proj",
            output: "o_proj",
        },
        mlp_norm: "post_attention_layernorm",
        mlp: "mlp",
        mlp_layers: MlpNames {
            input: "gate_up_proj",
            output: "down_proj",
        },
    },
    norm: Some("norm"),
    head: "lm_head",
};

impl LlamaConfig {
    /// Returns a new, whole Llama, this tensor rank's part of it, initialised by global names: the same numbers in
    /// every layout.
    ///
    /// # Errors
    /// When a size does not divide: see [`validate`](Self::validate). When the layout has pipeline stages.
    pub fn init<B: Backend>(&self, device: &B::Device, context: &ParallelContext) -> Result<Decoder<B>, ModelError> {
        self.decoder(context)?.init_in(device, &context.root())
    }

    /// Returns the chunks of this rank's pipeline stage, initialised likewise.
    ///
    /// # Errors
    /// When a size does not divide, or `layers` is not for this model or this layout.
    pub fn init_stage<B: Backend>(
        &self,
        layers: &LayerLayout,
        device: &B::Device,
        context: &ParallelContext,
    ) -> Result<Vec<Decoder<B>>, ModelError> {
        self.decoder(context)?.init_stage(layers, device, context)
    }

    fn decoder(&self, context: &ParallelContext) -> Result<DecoderConfig, ModelError> {
        self.validate(context.config())?;
        let [init, output_init] = weight_inits(self.init_deviation, self.n_layers);
        let attention = CausalSelfAttentionConfig::new(self.d_model, self.n_heads, init, output_init)
            .with_n_kv_heads(Some(self.n_kv_heads))
            .with_d_head(Some(self.head_size()))
            .with_order(HeadOrder::Groups)
            .with_qkv_bias(self.qkv_bias)
            .with_window(self.window)
            .with_qk_norm_epsilon(self.qk_norm.then_some(self.norm_epsilon))
            .with_output_bias(false)
            .with_dropout(self.attention_dropout);
        let mlp = MlpConfig::new(self.d_model, self.d_hidden, init, output_init)
            .with_activation(MlpActivation::SwiGlu)
            .with_bias(false);
        Ok(DecoderConfig {
            n_layers: self.n_layers,
            vocab_size: self.vocab_size,
            padded_vocab_size: self.padded_vocab(context.config().tensor_parallel_size),
            positions: Positions::Rotary(RotaryConfig {
                max_positions: self.max_seq_length,
                rotated: self.head_size(),
                base: self.rotary_base,
                scaling: self.rotary_scaling.clone(),
                layout: RotaryLayout::Halves,
            }),
            block: BlockConfig::new(attention, mlp)
                .with_norm(NormType::RmsNorm)
                .with_norm_epsilon(self.norm_epsilon)
                .with_hidden_dropout(self.hidden_dropout),
            masked: None,
            tied_embeddings: self.tied_embeddings,
            init,
            layer_recompute: self.layer_recompute,
            logit_chunk_tokens: self.logit_chunk_tokens,
            names: NAMES,
        })
    }
}
