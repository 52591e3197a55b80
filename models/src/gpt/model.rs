//! GPT as a [`DecoderConfig`].

use burn::tensor::backend::Backend;
use burn_megatron::context::{ParallelContext, ParameterScope};
use burn_megatron::pipeline_parallel::LayerLayout;

use super::GptConfig;
use crate::decoder::{Decoder, DecoderConfig, DecoderNames, Positions, weight_inits};
use crate::layers::{
    BlockConfig, BlockNames, CausalSelfAttentionConfig, CausalSelfAttentionNames, MlpConfig, MlpNames, ModelError,
};
use crate::model_config::ModelConfig;

/// A GPT, or a stage of one.
pub type Gpt<B> = Decoder<B>;

/// Names of Hugging Face's GPT-2.
const NAMES: DecoderNames = DecoderNames {
    token_embedding: "wte",
    position_embedding: "wpe",
    embedding_norm: None,
    blocks: "h",
    block: BlockNames {
        attention_norm: "ln_1",
        attention: "attn",
        attention_layers: CausalSelfAttentionNames {
            qkv: "c_attn",
            output: "c_proj",
        },
        mlp_norm: "ln_2",
        mlp: "mlp",
        mlp_layers: MlpNames {
            input: "c_fc",
            output: "c_proj",
        },
    },
    norm: Some("ln_f"),
    head: "lm_head",
};

impl GptConfig {
    /// Returns a new, whole GPT, this tensor rank's part of it, initialised by global names: the same numbers in every
    /// layout.
    ///
    /// Weights and embeddings start as N(0, 0.02²), projections back to `d_model` as N(0, (0.02 / √(2L))²), biases as
    /// 0, norms as 1 and 0.
    ///
    /// # Errors
    /// When a size does not divide: see [`validate`](Self::validate). When the layout has pipeline stages.
    pub fn init<B: Backend>(&self, device: &B::Device, context: &ParallelContext) -> Result<Gpt<B>, ModelError> {
        self.init_in(device, &context.root())
    }

    /// As [`init`](Self::init), as a part of a model: its parameters are named in `scope`.
    ///
    /// # Errors
    /// As [`init`](Self::init).
    pub fn init_in<B: Backend>(&self, device: &B::Device, scope: &ParameterScope) -> Result<Gpt<B>, ModelError> {
        self.decoder(scope.context())?.init_in(device, scope)
    }

    /// Returns the chunks of this rank's pipeline stage, initialised as [`init`](Self::init) does.
    ///
    /// # Errors
    /// When a size does not divide, or `layers` is not for this model or this layout.
    pub fn init_stage<B: Backend>(
        &self,
        layers: &LayerLayout,
        device: &B::Device,
        context: &ParallelContext,
    ) -> Result<Vec<Gpt<B>>, ModelError> {
        self.decoder(context)?.init_stage(layers, device, context)
    }

    fn decoder(&self, context: &ParallelContext) -> Result<DecoderConfig, ModelError> {
        self.validate(context.config())?;
        let [init, output_init] = weight_inits(self.init_deviation, self.n_layers);
        let block = BlockConfig::new(
            CausalSelfAttentionConfig::new(self.d_model, self.n_heads, init, output_init)
                .with_dropout(self.attention_dropout),
            MlpConfig::new(self.d_model, self.hidden_size(), init, output_init),
        );
        Ok(DecoderConfig {
            n_layers: self.n_layers,
            vocab_size: self.vocab_size,
            padded_vocab_size: self.padded_vocab(context.config().tensor_parallel_size),
            positions: Positions::Learned(self.max_seq_length),
            block: block
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
