//! A block of the decoder: self-attention, attention to the encoder's output, MLP.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use burn_megatron::context::ParameterScope;
use burn_megatron::parameters::ParameterInit;
use burn_megatron::random::{Dropout, DropoutConfig, DropoutSite};

use super::{T5Config, names};
use crate::layers::{
    CausalSelfAttention, CrossAttention, CrossAttentionConfig, MemoryTokens, Mlp, ModelError, Norm, NormType, Sums,
    TokenContext,
};

/// The dropout sites inside a layer: each has its own number, and so its own mask.
const ATTENTION_WEIGHTS_SITE: u32 = 0;
const ATTENTION_OUTPUT_SITE: u32 = 1;
const MLP_OUTPUT_SITE: u32 = 2;
const CROSS_WEIGHTS_SITE: u32 = 3;
const CROSS_OUTPUT_SITE: u32 = 4;

/// `x + attention(norm(x))`, then `x + cross(norm(x), encoded)`, then `x + mlp(norm(x))`.
///
/// # Reference
/// Raffel et al. 2019, arXiv:1910.10683, section 2.1.
#[derive(Module, Debug)]
pub struct DecoderBlock {
    /// The norm before the attention.
    pub attention_norm: Norm,
    /// The attention among the decoder's tokens.
    pub attention: CausalSelfAttention,
    /// The norm before the attention to the encoder.
    pub cross_norm: Norm,
    /// The attention to the encoder's output.
    pub cross: CrossAttention,
    /// The norm before the MLP.
    pub mlp_norm: Norm,
    pub mlp: Mlp,
    attention_dropout: Dropout,
    cross_dropout: Dropout,
    mlp_dropout: Dropout,
}

/// The encoder's output, as the decoder attends to it.
#[derive(Clone, Debug)]
pub struct Encoded {
    /// `[batch * encoder_seq, d_model]`; this rank's rows under sequence parallelism.
    pub output: Tensor<2>,
    pub tokens: MemoryTokens,
}

impl T5Config {
    /// Returns a block of the decoder, numbered from 0.
    pub(super) fn decoder_block(
        &self,
        layer: usize,
        inits: [ParameterInit; 2],
        device: &Device,
        scope: &ParameterScope,
    ) -> Result<DecoderBlock, ModelError> {
        let scope = scope.scope(names::decoder_block(layer));
        let norm = |name: &str| NormType::RmsNorm.init(self.d_model, self.norm_epsilon, device, &scope.scope(name));
        let site = |number| DropoutSite {
            layer: (self.n_encoder_layers + layer) as u32,
            number,
        };
        let dropout = |number| DropoutConfig::new(self.hidden_dropout).init(site(number));
        let [init, output_init] = inits;
        let cross = CrossAttentionConfig::new(self.d_model, self.n_heads, self.d_head, init, output_init)
            .with_scale(Some(1.0))
            .with_bias(false)
            .with_dropout(self.attention_dropout);
        Ok(DecoderBlock {
            attention_norm: norm("layer.0.layer_norm"),
            attention: self.attention_config(inits).init(
                site(ATTENTION_WEIGHTS_SITE),
                &names::ATTENTION,
                device,
                &scope.scope("layer.0.SelfAttention"),
            )?,
            cross_norm: norm("layer.1.layer_norm"),
            cross: cross.init(
                site(CROSS_WEIGHTS_SITE),
                &names::CROSS_ATTENTION,
                device,
                &scope.scope("layer.1.EncDecAttention"),
            )?,
            mlp_norm: norm("layer.2.layer_norm"),
            mlp: self
                .mlp_config(inits)
                .init(&names::MLP, device, &scope.scope("layer.2.DenseReluDense"))?,
            attention_dropout: dropout(ATTENTION_OUTPUT_SITE),
            cross_dropout: dropout(CROSS_OUTPUT_SITE),
            mlp_dropout: dropout(MLP_OUTPUT_SITE),
        })
    }
}

impl DecoderBlock {
    /// Applies the block.
    ///
    /// # Shapes
    /// - `input`: `[batch * seq, d_model]`; this rank's rows under sequence parallelism
    /// - `position_bias`: `[heads / tp, 2 * seq - 1]`, what is added to the scores of the self-attention
    /// - output: as `input`
    ///
    /// # Communication
    /// That of the attentions and of the MLP: three all-reduces of the input's size over the tensor group in the
    /// forward pass and three in the backward pass, and one there of the encoder's output; under sequence parallelism
    /// each is an all-gather and a reduce-scatter.
    ///
    /// # Panics
    /// When a collective fails, or the input is not of the parameters' type.
    pub fn forward(
        &self,
        input: Tensor<2>,
        encoded: &Encoded,
        position_bias: Tensor<2>,
        tokens: &TokenContext,
    ) -> Tensor<2> {
        let (sums, step) = (Sums::new(Some(tokens)), Some(&tokens.all));
        let [stream, normal] = self.attention_norm.forward_of_stream(input);
        let attended = self
            .attention
            .forward_with_position_bias(normal, Some(position_bias), tokens);
        let [stream, normal] = sums.add_and_norm(stream, attended, &self.attention_dropout, &self.cross_norm);
        let output = encoded.output.clone();
        let attended = self.cross.forward_without_bias(normal, output, &encoded.tokens, tokens);
        let [stream, normal] = sums.add_and_norm(stream, attended, &self.cross_dropout, &self.mlp_norm);
        let transformed = self.mlp.forward_for_sum(normal, step);
        sums.add(stream, transformed, &self.mlp_dropout)
    }
}
