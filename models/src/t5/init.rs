//! Making a T5, or the chunks of a pipeline stage of one.

use burn::tensor::Device;
use std::ops::Range;

use burn_megatron::context::{ParallelContext, ParameterScope};
use burn_megatron::parameters::ParameterInit;
use burn_megatron::pipeline_parallel::LayerLayout;
use burn_megatron::random::{Dropout, DropoutConfig, DropoutSite};
use burn_megatron::tensor_parallel::VocabParallelEmbeddingConfig;

use super::model::T5;
use super::{T5Config, names};
use crate::decoder::weight_inits;
use crate::layers::{
    Block, BlockConfig, CausalSelfAttentionConfig, MlpConfig, ModelError, ModelPart, NormType, Segmentation,
    validate_head_size,
};
use crate::model_config::ModelConfig;

impl T5Config {
    /// Returns a new, whole T5, this tensor rank's part of it, initialised by global names: the same numbers in every
    /// layout.
    ///
    /// # Errors
    /// When a size does not divide. When the layout has pipeline stages.
    pub fn init(&self, device: &Device, context: &ParallelContext) -> Result<T5, ModelError> {
        let part = ModelPart::whole(self.num_blocks(), context)?;
        self.check(context)?;
        self.init_part(&part, device, &context.root())
    }

    /// Returns the chunks of this rank's pipeline stage, initialised as [`init`](Self::init) does.
    ///
    /// # Errors
    /// When a size does not divide, or `layers` is not for this model or this layout.
    pub fn init_stage(
        &self,
        layers: &LayerLayout,
        device: &Device,
        context: &ParallelContext,
    ) -> Result<Vec<T5>, ModelError> {
        self.check(context)?;
        let parts = ModelPart::of_stage(self.num_blocks(), layers, context)?;
        let scope = context.root();
        parts.iter().map(|part| self.init_part(part, device, &scope)).collect()
    }

    fn check(&self, context: &ParallelContext) -> Result<(), ModelError> {
        self.validate(context.config())?;
        validate_head_size(self.d_head)
    }

    fn init_part(&self, part: &ModelPart, device: &Device, scope: &ParameterScope) -> Result<T5, ModelError> {
        let context = scope.context();
        let inits = weight_inits(self.init_deviation, self.num_blocks());
        let [init, _] = inits;
        let embedding = VocabParallelEmbeddingConfig::new(self.vocab_size, self.d_model)
            .with_padded_size(Some(self.padded_vocab(context.config().tensor_parallel_size)))
            .with_init(Some(init));
        let has_embedding = part.is_first || (part.is_last && self.tied_embeddings);
        let shared = has_embedding
            .then(|| embedding.init(device, &scope.scope(names::EMBEDDING)))
            .transpose()?;
        if let (Some(shared), true) = (&shared, self.tied_embeddings) {
            context.declare_tied(&shared.weight);
        }
        let head = (part.is_last && !self.tied_embeddings)
            .then(|| embedding.init(device, &scope.scope(names::HEAD)))
            .transpose()?;
        let norm = |name: &str| NormType::RmsNorm.init(self.d_model, self.norm_epsilon, device, &scope.scope(name));
        let bias = |is_encoder: bool, name: &str| {
            let buckets = self.buckets(is_encoder);
            buckets.init(self.n_heads, init, device, &scope.scope(name))
        };
        let halves = self.halves(&part.layers);
        let starts = |half: usize| halves[half].start == 0 && !halves[half].is_empty();
        let ends = |half: usize, count: usize| halves[half].end == count && !halves[half].is_empty();
        Ok(T5 {
            encoder_bias: starts(0).then(|| bias(true, names::ENCODER_BIAS)).transpose()?,
            encoder: halves[0]
                .clone()
                .map(|layer| self.encoder_block(layer, inits, device, scope))
                .collect::<Result<_, _>>()?,
            encoder_norm: ends(0, self.n_encoder_layers).then(|| norm(names::ENCODER_NORM)),
            decoder_bias: starts(1).then(|| bias(false, names::DECODER_BIAS)).transpose()?,
            decoder: halves[1]
                .clone()
                .map(|layer| self.decoder_block(layer, inits, device, scope))
                .collect::<Result<_, _>>()?,
            decoder_norm: part.is_last.then(|| norm(names::DECODER_NORM)),
            shared,
            head,
            dropouts: [0, 1, 2, 3].map(|number| self.dropout(number)),
            part: part.clone(),
            config: self.clone(),
            segmentation: Segmentation::new(self.layer_recompute, context),
            sequence_parallel: context.is_sequence_parallel(),
            tensor_group: context.tensor_group().clone(),
        })
    }

    /// The dropout of what is outside the blocks: the encoder's embeddings and final norm, and the decoder's.
    fn dropout(&self, number: u32) -> Dropout {
        DropoutConfig::new(self.hidden_dropout).init(DropoutSite {
            layer: self.num_blocks() as u32,
            number,
        })
    }

    /// Splits blocks into those of the encoder and those of the decoder, each numbered from 0.
    pub(super) fn halves(&self, blocks: &Range<usize>) -> [Range<usize>; 2] {
        let encoder = self.n_encoder_layers;
        let of_encoder = blocks.start.min(encoder)..blocks.end.min(encoder);
        let of_decoder = blocks.start.max(encoder) - encoder..blocks.end.max(encoder) - encoder;
        [of_encoder, of_decoder]
    }

    pub(super) fn attention_config(&self, [init, output_init]: [ParameterInit; 2]) -> CausalSelfAttentionConfig {
        CausalSelfAttentionConfig::new(self.d_model, self.n_heads, init, output_init)
            .with_d_head(Some(self.d_head))
            .with_scale(Some(1.0))
            .with_qkv_bias(false)
            .with_output_bias(false)
            .with_dropout(self.attention_dropout)
    }

    pub(super) fn mlp_config(&self, [init, output_init]: [ParameterInit; 2]) -> MlpConfig {
        MlpConfig::new(self.d_model, self.d_hidden, init, output_init)
            .with_activation(self.activation)
            .with_bias(false)
    }

    fn encoder_block(
        &self,
        layer: usize,
        inits: [ParameterInit; 2],
        device: &Device,
        scope: &ParameterScope,
    ) -> Result<Block, ModelError> {
        let block = BlockConfig::new(
            self.attention_config(inits).with_is_causal(false),
            self.mlp_config(inits),
        )
        .with_norm(NormType::RmsNorm)
        .with_norm_epsilon(self.norm_epsilon)
        .with_hidden_dropout(self.hidden_dropout);
        let scope = scope.scope(names::encoder_block(layer));
        Ok(block.init(layer, &names::ENCODER_BLOCK, device, &scope)?)
    }
}
