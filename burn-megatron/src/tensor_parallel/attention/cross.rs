//! Attention of one sequence's tokens to another's, with the keys and values of the other in one projection, each
//! tensor-parallel rank computing its own heads.

use burn::config::Config;
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use cubecl_kernels::flash_attention::{AttentionMask, AttentionOptions, KeyLengths, flash_attention};

use crate::context::ParameterScope;
use crate::parameters::ParameterInit;
use crate::random::{Dropout, DropoutConfig, DropoutSite, StepCoordinates};
use crate::tensor_parallel::{
    ColumnParallelLinear, ColumnParallelLinearConfig, RowParallelLinear, RowParallelLinearConfig, TokenContext, checked,
};
use crate::topology::TopologyError;

/// Configuration of [`CrossAttention`].
#[derive(Config, Debug)]
pub struct CrossAttentionConfig {
    /// The size of each token, of both sequences.
    pub d_model: usize,
    /// The number of heads.
    pub n_heads: usize,
    /// The size of a head.
    pub d_head: usize,
    /// What the products of queries and keys are multiplied by; `1 / √d_head` if not given.
    pub scale: Option<f64>,
    /// Whether the projections have biases.
    #[config(default = true)]
    pub bias: bool,
    /// The probability with which an attention weight becomes zero.
    #[config(default = 0.0)]
    pub dropout: f64,
    /// How the projections of queries, keys and values start.
    pub input_init: ParameterInit,
    /// How the output projection starts.
    pub output_init: ParameterInit,
}

/// The names of a cross-attention's projections in its scope.
#[derive(Clone, Copy, Debug)]
pub struct CrossAttentionNames {
    /// The projection of queries.
    pub query: &'static str,
    /// The fused projection of keys and values.
    pub key_value: &'static str,
    /// The output projection.
    pub output: &'static str,
}

/// `softmax(scale · Q Kᵀ) V` with the queries of one sequence and the keys and values of another, projected back to
/// `d_model`.
///
/// # Reference
/// Vaswani et al. 2017, arXiv:1706.03762, section 3.2.3.
#[derive(Module, Debug)]
pub struct CrossAttention {
    /// `d_model` to `n_heads * d_head`.
    pub query: ColumnParallelLinear,
    /// `d_model` to all keys' heads, then all values'.
    pub key_value: ColumnParallelLinear,
    /// The projection back.
    pub output: RowParallelLinear,
    dropout: Dropout,
    is_deterministic: bool,
    n_heads: usize,
    first_head: usize,
    d_head: usize,
    scale: f64,
}

/// The tokens that are attended to.
#[derive(Clone, Debug)]
pub struct MemoryTokens {
    /// How many of each sample count; the others are padding.
    pub lengths: KeyLengths,
    /// Where all of them are in the run.
    pub step: StepCoordinates,
}

impl CrossAttentionConfig {
    /// Returns the attention of a layer; its parameters are named by `names` in the context's scope.
    ///
    /// # Errors
    /// When the tensor-parallel size does not divide the heads.
    pub fn init(
        &self,
        dropout_site: DropoutSite,
        names: &CrossAttentionNames,
        device: &Device,
        scope: &ParameterScope,
    ) -> Result<CrossAttention, TopologyError> {
        let group = scope.context().tensor_group();
        scope.check_tensor_divides("the number of attention heads", self.n_heads)?;
        let (n_heads, width) = (self.n_heads / group.size(), self.n_heads * self.d_head);
        let column = |d_output: usize, fused: usize, name: &str| {
            ColumnParallelLinearConfig::new(self.d_model, d_output)
                .with_fused(fused)
                .with_bias(self.bias)
                .with_weight_init(Some(self.input_init))
                .with_bias_init(Some(ParameterInit::Zeros))
                .init(device, &scope.scope(name))
        };
        Ok(CrossAttention {
            query: column(width, 1, names.query)?,
            key_value: column(2 * width, 2, names.key_value)?,
            output: RowParallelLinearConfig::new(width, self.d_model)
                .with_bias(self.bias)
                .with_weight_init(Some(self.output_init))
                .with_bias_init(Some(ParameterInit::Zeros))
                .init(device, &scope.scope(names.output))?,
            dropout: DropoutConfig::new(self.dropout).init(dropout_site),
            is_deterministic: scope.context().is_deterministic(),
            n_heads,
            first_head: group.rank() * n_heads,
            d_head: self.d_head,
            scale: self.scale.unwrap_or(1.0 / (self.d_head as f64).sqrt()),
        })
    }
}

impl CrossAttention {
    /// Applies attention of each sample's tokens to the sample's tokens in `memory`.
    ///
    /// # Shapes
    /// - `input`: `[batch * seq, d_model]`, the same on every tensor-parallel rank; this rank's rows under sequence
    ///   parallelism
    /// - `memory`: `[batch * memory_seq, d_model]`, likewise
    /// - output: as `input`
    ///
    /// # Communication
    /// That of two column-parallel layers and of a row-parallel one.
    ///
    /// # Panics
    /// When a collective fails, or `memory` has another number of samples than `tokens`.
    pub fn forward(
        &self,
        input: Tensor<2>,
        memory: Tensor<2>,
        places: &MemoryTokens,
        tokens: &TokenContext,
    ) -> Tensor<2> {
        let attended = self.attend(input, memory, places, tokens);
        self.output.forward_at(attended, Some(&tokens.all))
    }

    /// As [`forward`](Self::forward), without the last bias, which is returned too, to be added by what comes next.
    pub fn forward_without_bias(
        &self,
        input: Tensor<2>,
        memory: Tensor<2>,
        places: &MemoryTokens,
        tokens: &TokenContext,
    ) -> (Tensor<2>, Option<Tensor<1>>) {
        let attended = self.attend(input, memory, places, tokens);
        self.output.forward_without_bias_at(attended, Some(&tokens.all))
    }

    /// `[batch * seq, heads * d_head]`: what this rank's heads give.
    fn attend(&self, input: Tensor<2>, memory: Tensor<2>, places: &MemoryTokens, tokens: &TokenContext) -> Tensor<2> {
        let (heads, d_head, seq) = (self.n_heads, self.d_head, tokens.seq_length);
        let query = self.query.forward_at(input, Some(&tokens.all));
        let batch = query.dims()[0] / seq;
        let query = query.reshape([batch, seq, heads, d_head]);
        let key_value = self.key_value.forward_at(memory, Some(&places.step));
        let memory_seq = key_value.dims()[0] / batch;
        let key_value = key_value.reshape([batch, memory_seq, 2 * heads, d_head]);
        let [key, value] = [0, heads].map(|first| key_value.clone().narrow(2, first, heads));
        let options = AttentionOptions {
            mask: AttentionMask::Full,
            scale: self.scale,
            dropout: self.dropout.of_attention(&tokens.all, self.first_head, &query.device()),
            documents: None,
            key_lengths: Some(places.lengths.clone()),
            is_deterministic: self.is_deterministic,
        };
        let output = checked(flash_attention(query, key, value, options));
        output.reshape([batch * seq, heads * d_head])
    }
}
