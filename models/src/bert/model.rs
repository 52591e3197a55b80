//! BERT as a [`DecoderConfig`] whose attention is not causal.

use burn::tensor::backend::Backend;
use burn_megatron::context::ParallelContext;
use burn_megatron::pipeline_parallel::LayerLayout;

use super::{BertConfig, NormOrder};
use crate::decoder::{
    Decoder, DecoderConfig, DecoderNames, MaskedTokenConfig, MaskedTokenNames, Positions, weight_inits,
};
use crate::layers::{
    BlockConfig, BlockNames, CausalSelfAttentionConfig, CausalSelfAttentionNames, MlpConfig, MlpNames, ModelError,
    Residual,
};
use crate::model_config::ModelConfig;

const NAMES: DecoderNames = DecoderNames {
    token_embedding: "embeddings.word_embeddings",
    position_embedding: "embeddings.position_embeddings",
    embedding_norm: Some("embeddings.LayerNorm"),
    blocks: "encoder.layer",
    block: BlockNames {
        attention_norm: "attention.ln",
        attention: "attention",
        attention_layers: CausalSelfAttentionNames {
            qkv: "self.qkv",
            output: "output.dense",
        },
        mlp_norm: "ln",
        mlp: "mlp",
        mlp_layers: MlpNames {
            input: "intermediate.dense",
            output: "output.dense",
        },
    },
    norm: Some("encoder.ln"),
    head: "cls.predictions.decoder",
};

const MASKED_NAMES: MaskedTokenNames = MaskedTokenNames {
    token_types: "embeddings.token_type_embeddings",
    transform: "cls.predictions.transform.dense",
    transform_norm: "cls.predictions.transform.LayerNorm",
    head: "cls.predictions",
    pooler: "pooler.dense",
    pairs: "cls.seq_relationship",
};

impl BertConfig {
    /// Returns a new, whole BERT, this tensor rank's part of it, initialised by global names: the same numbers in every
    /// layout.
    ///
    /// # Errors
    /// When a size does not divide. When the layout has pipeline stages.
    pub fn init<B: Backend>(&self, device: &B::Device, context: &ParallelContext) -> Result<Decoder<B>, ModelError> {
        self.decoder(context)?.init_in(device, &context.root())
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
    ) -> Result<Vec<Decoder<B>>, ModelError> {
        self.decoder(context)?.init_stage(layers, device, context)
    }

    fn decoder(&self, context: &ParallelContext) -> Result<DecoderConfig, ModelError> {
        self.validate(context.config())?;
        let [init, output_init] = weight_inits(self.init_deviation, self.n_layers);
        let attention = CausalSelfAttentionConfig::new(self.d_model, self.n_heads, init, output_init)
            .with_is_causal(false)
            .with_dropout(self.attention_dropout);
        let mlp = MlpConfig::new(self.d_model, self.hidden_size(), init, output_init).with_activation(self.activation);
        Ok(DecoderConfig {
            n_layers: self.n_layers,
            vocab_size: self.vocab_size,
            padded_vocab_size: self.padded_vocab(context.config().tensor_parallel_size),
            positions: Positions::Learned(self.max_seq_length),
            block: BlockConfig::new(attention, mlp)
                .with_residual(match self.order {
                    NormOrder::Before => Residual::Sequential,
                    NormOrder::After => Residual::PostNorm,
                })
                .with_norm_epsilon(self.norm_epsilon)
                .with_hidden_dropout(self.hidden_dropout),
            masked: Some(MaskedTokenConfig {
                token_types: self.token_types,
                tells_pairs: self.tells_pairs,
                names: MASKED_NAMES,
            }),
            tied_embeddings: self.tied_embeddings,
            init,
            layer_recompute: self.layer_recompute,
            logit_chunk_tokens: self.logit_chunk_tokens,
            names: self.names(),
        })
    }

    /// Hugging Face calls norms after a sublayer as its output's.
    fn names(&self) -> DecoderNames {
        let mut names = NAMES;
        match self.order {
            NormOrder::Before => names.embedding_norm = None,
            NormOrder::After => {
                names.norm = None;
                names.block.attention_norm = "attention.output.LayerNorm";
                names.block.mlp_norm = "output.LayerNorm";
            }
        }
        names
    }
}
