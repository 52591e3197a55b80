//! A block of the decoder: self-attention, attention to the encoder's output, MLP.

use burn::config::Config;
use burn::module::Module;
use burn::tensor::{Tensor, backend::Backend};
use burn_megatron::collectives::CollectiveBackend;
use burn_megatron::context::ParameterScope;
use burn_megatron::random::{Dropout, DropoutConfig, DropoutSite};
use burn_megatron::topology::TopologyError;
use cubecl_kernels::Kernels;
use cubecl_kernels::norm::Addends;

use crate::layers::{
    CausalSelfAttention, CausalSelfAttentionConfig, CausalSelfAttentionNames, CrossAttention, CrossAttentionConfig,
    CrossAttentionNames, MemoryTokens, Mlp, MlpConfig, MlpNames, Norm, NormType, TokenContext, add_dropped, with_bias,
};

/// The dropout sites inside a layer: each has its own number, and so its own mask.
const ATTENTION_WEIGHTS_SITE: u32 = 0;
const ATTENTION_OUTPUT_SITE: u32 = 1;
const MLP_OUTPUT_SITE: u32 = 2;
const CROSS_WEIGHTS_SITE: u32 = 3;
const CROSS_OUTPUT_SITE: u32 = 4;

#[derive(Config, Debug)]
pub struct DecoderBlockConfig {
    /// The attention among the decoder's tokens.
    pub attention: CausalSelfAttentionConfig,
    /// The attention to the encoder's output.
    pub cross: CrossAttentionConfig,
    pub mlp: MlpConfig,
    pub norm: NormType,
    /// The number that norms add to the mean of the squares.
    pub norm_epsilon: f64,
    /// The probability with which an element of a sublayer's output becomes zero.
    pub hidden_dropout: f64,
}

/// The names of a block's parameters in the block's scope.
#[derive(Clone, Copy, Debug)]
pub struct DecoderBlockNames {
    /// The norm before the attention.
    pub attention_norm: &'static str,
    pub attention: &'static str,
    pub attention_layers: CausalSelfAttentionNames,
    /// The norm before the attention to the encoder.
    pub cross_norm: &'static str,
    /// The attention to the encoder.
    pub cross: &'static str,
    pub cross_layers: CrossAttentionNames,
    /// The norm before the MLP.
    pub mlp_norm: &'static str,
    pub mlp: &'static str,
    pub mlp_layers: MlpNames,
}

/// `x + attention(norm(x))`, then `x + cross(norm(x), encoded)`, then `x + mlp(norm(x))`.
///
/// # Reference
/// Raffel et al. 2019, arXiv:1910.10683, section 2.1.
#[derive(Module, Debug)]
pub struct DecoderBlock<B: Backend> {
    /// The norm before the attention.
    pub attention_norm: Norm<B>,
    /// The attention among the decoder's tokens.
    pub attention: CausalSelfAttention<B>,
    /// The norm before the attention to the encoder.
    pub cross_norm: Norm<B>,
    /// The attention to the encoder's output.
    pub cross: CrossAttention<B>,
    /// The norm before the MLP.
    pub mlp_norm: Norm<B>,
    pub mlp: Mlp<B>,
    attention_dropout: Dropout,
    cross_dropout: Dropout,
    mlp_dropout: Dropout,
    #[module(skip)]
    kernels: Kernels,
}

/// What the encoder gave to the decoder.
#[derive(Clone, Debug)]
pub struct Encoded<B: Backend> {
    /// `[batch * encoder_seq, d_model]`; this rank's rows under sequence parallelism.
    pub output: Tensor<B, 2>,
    pub tokens: MemoryTokens,
}

impl DecoderBlockConfig {
    /// Returns the block of global layer number `layer`; its parameters are named by `names` in the context's scope.
    pub fn init<B: Backend>(
        &self,
        layer: usize,
        names: &DecoderBlockNames,
        device: &B::Device,
        scope: &ParameterScope,
    ) -> Result<DecoderBlock<B>, TopologyError> {
        let norm = |name: &str| {
            let scope = scope.scope(name);
            self.norm
                .init(self.attention.d_model, self.norm_epsilon, device, &scope)
        };
        let site = |number| DropoutSite {
            layer: layer as u32,
            number,
        };
        let dropout = |number| DropoutConfig::new(self.hidden_dropout).init(site(number));
        Ok(DecoderBlock {
            attention_norm: norm(names.attention_norm),
            attention: self.attention.init(
                site(ATTENTION_WEIGHTS_SITE),
                &names.attention_layers,
                device,
                &scope.scope(names.attention),
            )?,
            cross_norm: norm(names.cross_norm),
            cross: self.cross.init(
                site(CROSS_WEIGHTS_SITE),
                &names.cross_layers,
                device,
                &scope.scope(names.cross),
            )?,
            mlp_norm: norm(names.mlp_norm),
            mlp: self.mlp.init(&names.mlp_layers, device, &scope.scope(names.mlp))?,
            attention_dropout: dropout(ATTENTION_OUTPUT_SITE),
            cross_dropout: dropout(CROSS_OUTPUT_SITE),
            mlp_dropout: dropout(MLP_OUTPUT_SITE),
            kernels: scope.context().kernels(),
        })
    }
}

impl<B: CollectiveBackend> DecoderBlock<B> {
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
        input: Tensor<B, 2>,
        encoded: &Encoded<B>,
        position_bias: Tensor<B, 2>,
        tokens: &TokenContext,
    ) -> Tensor<B, 2> {
        match self.kernels {
            Kernels::Fused => self.forward_fused(input, encoded, position_bias, tokens),
            Kernels::Plain => self.forward_plain(input, encoded, position_bias, tokens),
        }
    }

    fn forward_fused(
        &self,
        input: Tensor<B, 2>,
        encoded: &Encoded<B>,
        position_bias: Tensor<B, 2>,
        tokens: &TokenContext,
    ) -> Tensor<B, 2> {
        let device = input.device();
        let dropouts = [&self.attention_dropout, &self.cross_dropout, &self.mlp_dropout];
        let [of_attention, of_cross, of_mlp] = dropouts.map(|dropout| dropout.of_rows::<B>(&tokens.local, &device));
        let [stream, normal] = self.attention_norm.forward_of_stream(input);
        let (attended, bias) = self
            .attention
            .forward_with_position_bias(normal, Some(position_bias), tokens);
        let [stream, normal] = self.cross_norm.forward_of_sum(Addends {
            input: attended,
            bias,
            residual: stream,
            dropout: of_attention,
        });
        let output = encoded.output.clone();
        let (attended, bias) = self.cross.forward_without_bias(normal, output, &encoded.tokens, tokens);
        let [stream, normal] = self.mlp_norm.forward_of_sum(Addends {
            input: attended,
            bias,
            residual: stream,
            dropout: of_cross,
        });
        let (transformed, bias) = self.mlp.forward_without_bias(normal, Some(&tokens.all));
        add_dropped(Addends {
            input: transformed,
            bias,
            residual: stream,
            dropout: of_mlp,
        })
    }

    fn forward_plain(
        &self,
        input: Tensor<B, 2>,
        encoded: &Encoded<B>,
        position_bias: Tensor<B, 2>,
        tokens: &TokenContext,
    ) -> Tensor<B, 2> {
        let normal = self.attention_norm.forward(input.clone());
        let attended = with_bias(
            self.attention
                .forward_with_position_bias(normal, Some(position_bias), tokens),
        );
        let stream = input + self.attention_dropout.forward(attended, &tokens.local);
        let output = encoded.output.clone();
        let normal = self.cross_norm.forward(stream.clone());
        let attended = self.cross.forward(normal, output, &encoded.tokens, tokens);
        let stream = stream + self.cross_dropout.forward(attended, &tokens.local);
        let transformed = self
            .mlp
            .forward(self.mlp_norm.forward(stream.clone()), Some(&tokens.all));
        stream + self.mlp_dropout.forward(transformed, &tokens.local)
    }
}
