//! [`DecoderConfig`]: what a decoder-only model is made of.

use burn::tensor::backend::Backend;
use burn_megatron::context::{ParallelContext, ParameterScope};
use burn_megatron::parameters::ParameterInit;
use burn_megatron::pipeline_parallel::LayerLayout;

use super::Decoder;
use crate::layers::{BlockConfig, BlockNames, LayerRecompute, ModelError, ModelPart, RotaryConfig, validate_head_size};

/// What a decoder-only model is made of; the sizes are valid, as its family has checked.
#[derive(Debug)]
pub struct DecoderConfig {
    /// The number of blocks.
    pub n_layers: usize,
    /// The size of the vocabulary, without padding.
    pub vocab_size: usize,
    /// The size of the vocabulary with padding.
    pub padded_vocab_size: usize,
    /// How the model knows where a token is.
    pub positions: Positions,
    /// The blocks, each of which has the same parts.
    pub block: BlockConfig,
    /// Whether the output head is the token embedding.
    pub tied_embeddings: bool,
    /// How embeddings and the head start.
    pub init: ParameterInit,
    /// Which blocks run again before their backward pass.
    pub layer_recompute: LayerRecompute,
    /// The most tokens whose logits are in one buffer; those of 1 GiB if not given.
    pub logit_chunk_tokens: Option<usize>,
    /// What the parameters are called.
    pub names: DecoderNames,
}

/// How a model knows where a token is in its sample.
#[derive(Clone, Debug, PartialEq)]
pub enum Positions {
    /// An embedding of each position up to this number is added to that of the token.
    Learned(usize),
    /// Queries and keys are turned.
    Rotary(RotaryConfig),
}

/// The names of a model's parameters.
#[derive(Clone, Copy, Debug)]
pub struct DecoderNames {
    /// The token embedding.
    pub token_embedding: &'static str,
    /// The position embedding, where it is learned.
    pub position_embedding: &'static str,
    /// The blocks, each with a dot and its number after this.
    pub blocks: &'static str,
    /// The parts of a block.
    pub block: BlockNames,
    /// The final norm.
    pub norm: &'static str,
    /// The output head where it is not tied.
    pub head: &'static str,
}

impl DecoderConfig {
    /// The size of each token.
    pub fn d_model(&self) -> usize {
        self.block.attention.d_model
    }

    /// Returns a new, whole model, this tensor rank's part of it, initialised by global names: the same numbers in
    /// every layout. Its parameters are named in `scope`.
    ///
    /// # Errors
    /// When a size does not divide, fused attention does not compute with the heads, or the layout has pipeline stages.
    pub fn init_in<B: Backend>(&self, device: &B::Device, scope: &ParameterScope) -> Result<Decoder<B>, ModelError> {
        let part = ModelPart::whole(self.n_layers, scope.context())?;
        self.validate_heads(scope.context())?;
        self.init_part(&part, device, scope)
    }

    /// Returns the chunks of this rank's pipeline stage, initialised likewise.
    ///
    /// # Errors
    /// As [`init_in`](Self::init_in); when `layers` is not for this model or this layout.
    pub fn init_stage<B: Backend>(
        &self,
        layers: &LayerLayout,
        device: &B::Device,
        context: &ParallelContext,
    ) -> Result<Vec<Decoder<B>>, ModelError> {
        self.validate_heads(context)?;
        let parts = ModelPart::of_stage(self.n_layers, layers, context)?;
        let scope = context.root();
        parts.iter().map(|part| self.init_part(part, device, &scope)).collect()
    }

    fn validate_heads(&self, context: &ParallelContext) -> Result<(), ModelError> {
        let attention = &self.block.attention;
        let d_head = attention.d_head.unwrap_or(attention.d_model / attention.n_heads);
        validate_head_size(d_head, context.kernels())
    }
}
