//! A transformer block.

mod parallel;

use burn::config::Config;
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use burn_megatron::context::ParameterScope;
use burn_megatron::random::{Dropout, DropoutConfig, DropoutSite};
use burn_megatron::tensor_parallel::{PagedKeyValues, PagedTokens};
use burn_megatron::topology::TopologyError;
use serde::{Deserialize, Serialize};

use super::{
    Alibi, CausalSelfAttention, CausalSelfAttentionConfig, CausalSelfAttentionNames, Mlp, MlpConfig, MlpNames, Norm,
    NormType, Rotary, Sums, TokenContext, WithoutBias,
};

/// The dropout sites inside a layer: each has its own number, and so its own mask.
const ATTENTION_WEIGHTS_SITE: u32 = 0;
const ATTENTION_OUTPUT_SITE: u32 = 1;
const MLP_OUTPUT_SITE: u32 = 2;

#[derive(Config, Debug)]
pub struct BlockConfig {
    pub attention: CausalSelfAttentionConfig,
    pub mlp: MlpConfig,
    #[config(default = "NormType::LayerNorm")]
    pub norm: NormType,
    /// How attention and MLP are added to the residual stream.
    #[config(default = "Residual::Sequential")]
    pub residual: Residual,
    #[config(default = 1e-5)]
    pub norm_epsilon: f64,
    /// The probability with which an element of the attention's or the MLP's output becomes zero.
    #[config(default = 0.0)]
    pub hidden_dropout: f64,
}

/// How attention and MLP are added to the residual stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Residual {
    /// One after the other: `x + attention(norm(x))`, then `x + mlp(norm(x))`.
    Sequential,
    /// Both from the same stream: `x + attention(norm(x)) + mlp(norm(x))`, with a norm of each.
    Parallel,
    /// One after the other, each sum normed: `norm(x + attention(x))`, then `norm(x + mlp(x))`.
    PostNorm,
}

/// The names of a block's parameters in the block's scope.
#[derive(Clone, Copy, Debug)]
pub struct BlockNames {
    pub attention_norm: &'static str,
    pub attention: &'static str,
    pub attention_layers: CausalSelfAttentionNames,
    pub mlp_norm: &'static str,
    pub mlp: &'static str,
    pub mlp_layers: MlpNames,
}

/// `x + attention(norm(x))`, then `x + mlp(norm(x))`; both at once, or with norms after the sums: see [`Residual`].
///
/// # Reference
/// Radford et al. 2019, "Language models are unsupervised multitask learners", section 2.3; both at once: Black et al.
/// 2022, arXiv:2204.06745, section 2.1; norms after the sums: Vaswani et al. 2017, arXiv:1706.03762, section 3.1.
#[derive(Module, Debug)]
pub struct Block {
    pub attention_norm: Norm,
    pub attention: CausalSelfAttention,
    pub mlp_norm: Norm,
    pub mlp: Mlp,
    attention_dropout: Dropout,
    mlp_dropout: Dropout,
    #[module(skip)]
    residual: Residual,
}

impl BlockConfig {
    /// Returns the block of global layer number `layer`; its parameters are named by `names` in the context's scope.
    pub fn init(
        &self,
        layer: usize,
        names: &BlockNames,
        device: &Device,
        scope: &ParameterScope,
    ) -> Result<Block, TopologyError> {
        let norm = |name| {
            let scope = scope.scope(name);
            self.norm
                .init(self.attention.d_model, self.norm_epsilon, device, &scope)
        };
        let site = |number| DropoutSite {
            layer: layer as u32,
            number,
        };
        let dropout = DropoutConfig::new(self.hidden_dropout);
        Ok(Block {
            attention_norm: norm(names.attention_norm),
            attention: self.attention.init(
                site(ATTENTION_WEIGHTS_SITE),
                &names.attention_layers,
                device,
                &scope.scope(names.attention),
            )?,
            mlp_norm: norm(names.mlp_norm),
            mlp: self.mlp.init(&names.mlp_layers, device, &scope.scope(names.mlp))?,
            attention_dropout: dropout.init(site(ATTENTION_OUTPUT_SITE)),
            mlp_dropout: dropout.init(site(MLP_OUTPUT_SITE)),
            residual: self.residual,
        })
    }
}

impl Block {
    /// Returns the same block whose queries and keys are turned by their positions.
    ///
    /// # Panics
    /// As [`CausalSelfAttention::with_rotary`].
    pub fn with_rotary(self, rotary: Rotary) -> Self {
        Self {
            attention: self.attention.with_rotary(rotary),
            ..self
        }
    }

    /// Returns the same block whose scores fall with the distance between query and key.
    ///
    /// # Panics
    /// As [`CausalSelfAttention::with_alibi`].
    pub fn with_alibi(self, alibi: Alibi) -> Self {
        Self {
            attention: self.attention.with_alibi(alibi),
            ..self
        }
    }
}

impl Block {
    /// Returns the same block for whole activations on every tensor-parallel rank, without sequence parallelism. For
    /// inference: parameters stay declared as they are.
    pub fn with_whole_tokens(self) -> Self {
        Self {
            attention: self.attention.with_whole_tokens(),
            mlp: self.mlp.with_whole_tokens(),
            ..self
        }
    }

    /// Applies the block.
    ///
    /// # Shapes
    /// - `input`: `[batch * seq, d_model]`; this rank's rows under sequence parallelism
    /// - output: as `input`
    ///
    /// # Communication
    /// That of the attention and of the MLP: two all-reduces of the input's size over the tensor group (under sequence
    /// parallelism two all-gathers and two reduce-scatters) in the forward pass, and the same in the backward pass.
    /// With a parallel residual and without dropout one all-reduce (two all-gathers and one reduce-scatter) in the
    /// forward pass and two (two reduce-scatters and one all-gather) in the backward pass.
    ///
    /// # Panics
    /// When a collective fails, or the input is not of the parameters' type.
    pub fn forward(&self, input: Tensor<2>, tokens: &TokenContext) -> Tensor<2> {
        match self.residual {
            Residual::Parallel => self.forward_parallel(input, tokens),
            Residual::Sequential | Residual::PostNorm => self.forward_with_position_bias(input, None, tokens),
        }
    }

    /// Applies the block as [`forward`](Self::forward) does, with a bias that is added to the attention's scores,
    /// `[heads / tp, 2 * seq - 1]`: see [`CausalSelfAttention::forward_with_position_bias`].
    ///
    /// # Panics
    /// As [`forward`](Self::forward), and where the residual is parallel, which no family with such a bias has.
    pub fn forward_with_position_bias(
        &self,
        input: Tensor<2>,
        position_bias: Option<Tensor<2>>,
        tokens: &TokenContext,
    ) -> Tensor<2> {
        assert_ne!(self.residual, Residual::Parallel, "a block with a position bias");
        self.apply(input, Some(tokens), |normal| {
            self.attention.forward_with_position_bias(normal, position_bias, tokens)
        })
    }

    /// Applies the block to the new tokens of sequences, whose earlier tokens are in `cache`; nothing is dropped.
    ///
    /// # Shapes
    /// - `input`: `[tokens, d_model]`, the same on every tensor-parallel rank
    /// - output: as `input`
    ///
    /// # Communication
    /// That of the attention and of the MLP: two all-reduces of the input's size over the tensor group; one with a
    /// parallel residual.
    ///
    /// # Panics
    /// As [`forward`](Self::forward).
    pub fn forward_paged(&self, input: Tensor<2>, tokens: &PagedTokens, cache: &mut PagedKeyValues) -> Tensor<2> {
        if self.residual == Residual::Parallel {
            return self.forward_paged_parallel(input, tokens, cache);
        }
        self.apply(input, None, |normal| {
            self.attention.forward_paged_without_bias(normal, tokens, cache)
        })
    }

    /// Applies the block with an attention. With fused operations and norms first, the backward pass of the norm
    /// before it adds up the gradients of the residual stream.
    fn apply(
        &self,
        input: Tensor<2>,
        tokens: Option<&TokenContext>,
        attend: impl FnOnce(Tensor<2>) -> WithoutBias,
    ) -> Tensor<2> {
        let (sums, step) = (Sums::new(tokens), tokens.map(|tokens| &tokens.all));
        let [of_attention, of_mlp] = [&self.attention_dropout, &self.mlp_dropout];
        if self.residual == Residual::PostNorm {
            let attended = attend(input.clone());
            let [_, hidden] = sums.add_and_norm(input, attended, of_attention, &self.attention_norm);
            let transformed = self.mlp.forward_for_sum(hidden.clone(), step);
            let [_, output] = sums.add_and_norm(hidden, transformed, of_mlp, &self.mlp_norm);
            return output;
        }
        let [stream, normal] = self.attention_norm.forward_of_stream(input);
        let attended = attend(normal);
        let [hidden, normal] = sums.add_and_norm(stream, attended, of_attention, &self.mlp_norm);
        let transformed = self.mlp.forward_for_sum(normal, step);
        sums.add(hidden, transformed, of_mlp)
    }
}
