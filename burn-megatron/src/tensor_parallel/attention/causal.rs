//! Multi-head causal self-attention with fused projections, each tensor-parallel rank computing its own heads.

use crate::collectives::CollectiveBackend;
use crate::context::ParameterScope;
use crate::parameters::ParameterInit;
use crate::random::{Dropout, DropoutConfig, DropoutSite};
use crate::tensor_parallel::{
    ColumnParallelLinear, ColumnParallelLinearConfig, RowParallelLinear, RowParallelLinearConfig, TokenContext,
};
use crate::topology::{TopologyError, check_divides};
use burn::config::Config;
use burn::module::Module;
use burn::tensor::{Tensor, backend::Backend};
use cubecl_kernels::Kernels;
use cubecl_kernels::flash_attention::{
    AttentionMask, AttentionOptions, PackedHeads, flash_attention_packed, reference, unpack,
};

/// Configuration of [`CausalSelfAttention`].
#[derive(Config, Debug)]
pub struct CausalSelfAttentionConfig {
    /// The size of each token.
    pub d_model: usize,
    /// The number of heads, which divides `d_model`.
    pub n_heads: usize,
    /// The probability with which an attention weight becomes zero.
    #[config(default = 0.0)]
    pub dropout: f64,
    /// How the fused query-key-value projection starts.
    pub qkv_init: ParameterInit,
    /// How the output projection starts.
    pub output_init: ParameterInit,
}

/// The names of an attention's projections in the attention's scope.
#[derive(Clone, Copy, Debug)]
pub struct CausalSelfAttentionNames {
    /// The fused query-key-value projection.
    pub qkv: &'static str,
    /// The output projection.
    pub output: &'static str,
}

/// `softmax(Q Kᵀ / √d_head + mask) V`, projected back to `d_model`.
///
/// # Reference
/// Vaswani et al. 2017, arXiv:1706.03762, section 3.2.
#[derive(Module, Debug)]
pub struct CausalSelfAttention<B: Backend> {
    /// `[Q | K | V]`, each shared out by heads.
    pub qkv: ColumnParallelLinear<B>,
    /// The projection back.
    pub output: RowParallelLinear<B>,
    dropout: Dropout,
    #[module(skip)]
    pub(super) kernels: Kernels,
    pub(super) is_deterministic: bool,
    pub(super) n_heads: usize,
    first_head: usize,
    pub(super) d_head: usize,
}

impl CausalSelfAttentionConfig {
    /// Returns the attention of a layer; its parameters are named by `names` in the context's scope.
    ///
    /// # Errors
    /// When the number of heads does not divide `d_model`, or the tensor-parallel size does not divide the heads.
    pub fn init<B: Backend>(
        &self,
        dropout_site: DropoutSite,
        names: &CausalSelfAttentionNames,
        device: &B::Device,
        scope: &ParameterScope,
    ) -> Result<CausalSelfAttention<B>, TopologyError> {
        let group = scope.context().tensor_group();
        scope.check_tensor_divides("the number of attention heads", self.n_heads)?;
        check_divides("d_model", self.d_model, "n_heads", self.n_heads)?;
        let n_heads = self.n_heads / group.size();
        let qkv = ColumnParallelLinearConfig::new(self.d_model, 3 * self.d_model)
            .with_fused(3)
            .with_weight_init(Some(self.qkv_init))
            .with_bias_init(Some(ParameterInit::Zeros))
            .init(device, &scope.scope(names.qkv))?;
        let output = RowParallelLinearConfig::new(self.d_model, self.d_model)
            .with_weight_init(Some(self.output_init))
            .with_bias_init(Some(ParameterInit::Zeros))
            .init(device, &scope.scope(names.output))?;
        Ok(CausalSelfAttention {
            qkv,
            output,
            dropout: DropoutConfig::new(self.dropout).init(dropout_site),
            kernels: scope.context().kernels(),
            is_deterministic: scope.context().is_deterministic(),
            n_heads,
            first_head: group.rank() * n_heads,
            d_head: self.d_model / self.n_heads,
        })
    }
}

impl<B: CollectiveBackend> CausalSelfAttention<B> {
    /// Returns the same attention for whole activations on every tensor-parallel rank, without sequence parallelism.
    /// For inference: parameters stay declared as they are.
    pub fn with_whole_tokens(self) -> Self {
        Self {
            qkv: self.qkv.with_whole_tokens(),
            output: self.output.with_whole_tokens(),
            ..self
        }
    }

    /// Applies attention within each sample, or within each of its documents where the tokens have
    /// [documents](TokenContext::with_documents).
    ///
    /// # Shapes
    /// - `input`: `[batch * seq, d_model]`, the same on every tensor-parallel rank; this rank's rows under sequence
    ///   parallelism
    /// - output: as `input`
    ///
    /// # Communication
    /// That of a column-parallel and of a row-parallel layer.
    ///
    /// # Panics
    /// When a collective fails, or the tokens' documents are those of another number of tokens.
    pub fn forward(&self, input: Tensor<B, 2>, tokens: &TokenContext) -> Tensor<B, 2> {
        self.output.forward(self.attend(input, tokens))
    }

    /// As [`forward`](Self::forward), without the last bias, which is returned too, to be added by what comes next.
    pub fn forward_without_bias(
        &self,
        input: Tensor<B, 2>,
        tokens: &TokenContext,
    ) -> (Tensor<B, 2>, Option<Tensor<B, 1>>) {
        self.output.forward_without_bias(self.attend(input, tokens))
    }

    /// `[batch * seq, heads * d_head]`: what this rank's heads give.
    fn attend(&self, input: Tensor<B, 2>, tokens: &TokenContext) -> Tensor<B, 2> {
        let qkv = self.qkv.forward(input);
        let (seq, heads, d_head) = (tokens.seq_length, self.n_heads, self.d_head);
        let batch = qkv.dims()[0] / seq;
        let qkv = qkv.reshape([batch, seq, 3 * heads, d_head]);
        let options = AttentionOptions {
            mask: AttentionMask::Causal,
            scale: 1.0 / (d_head as f64).sqrt(),
            dropout: self
                .dropout
                .of_attention::<B>(&tokens.all, self.first_head, &qkv.device()),
            documents: tokens.documents.clone(),
            is_deterministic: self.is_deterministic,
        };
        let parts = PackedHeads {
            queries: heads,
            keys: heads,
        };
        let output = match self.kernels {
            Kernels::Fused => flash_attention_packed(qkv, parts, options).unwrap_or_else(|error| panic!("{error}")),
            Kernels::Plain => reference::forward(unpack(qkv, parts), &options).output,
        };
        output.reshape([batch * seq, heads * d_head])
    }
}
