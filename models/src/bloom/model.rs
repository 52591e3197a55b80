//! BLOOM as a [`DecoderConfig`].

use burn::tensor::backend::Backend;
use burn_megatron::context::ParallelContext;
use burn_megatron::pipeline_parallel::LayerLayout;

use super::BloomConfig;
use crate::decoder::{Decoder, DecoderConfig, DecoderNames, Positions, weight_inits};
use crate::layers::{
    BlockConfig, BlockNames, CausalSelfAttentionConfig, CausalSelfAttentionNames, HeadOrder, MlpConfig, MlpNames,
    ModelError,
};
use crate::model_config::ModelConfig;

/// Names of Hugging Face's BLOOM.
const NAMES: DecoderNames = DecoderNames {
    token_embedding: "word_embeddings",
    // There is none.
    position_embedding: "",
    embedding_norm: Some("word_embeddings_layernorm"),
    blocks: "h",
    block: BlockNames {
        attention_norm: "input_layernorm",
        attention: "self_attention",
        attention_layers: CausalSelfAttentionNames {
            qkv: "query_key_value",
            output: "dense",
        },
        mlp_norm: "post_attention_layernorm",
        mlp: "mlp",
        mlp_layers: MlpNames {
            input: "dense_h_to_4h",
            output: "dense_4h_to_h",
        },
    },
    norm: Some("ln_f"),
    head: "lm_head",
};

impl BloomConfig {
    /// Returns a new, whole BLOOM, this tensor rank's part of it, initialised by global names: the same numbers in
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
        // Each head's query, key and value are next to each other.
        let attention = CausalSelfAttentionConfig::new(self.d_model, self.n_heads, init, output_init)
            .with_order(HeadOrder::Groups)
            .with_dropout(self.attention_dropout);
        let mlp = MlpConfig::new(self.d_model, self.hidden_size(), init, output_init);
        Ok(DecoderConfig {
            n_layers: self.n_layers,
            vocab_size: self.vocab_size,
            padded_vocab_size: self.padded_vocab(context.config().tensor_parallel_size),
            positions: Positions::Alibi,
            masked: None,
            block: BlockConfig::new(attention, mlp)
                .with_norm_epsilon(self.norm_epsilon)
                .with_hidden_dropout(self.hidden_dropout),
            tied_embeddings: self.tied_embeddings,
            init,
            layer_recompute: self.layer_recompute,
            logit_chunk_tokens: self.logit_chunk_tokens,
            names: NAMES,
        })
    }
}
