//! Multi-head causal self-attention with fused projections, each tensor-parallel rank computing its own heads.

use super::alibi::Alibi;
use super::qk_norms::QkNorms;
use super::rotary::{HostPositions, Rotary, RotaryPositions};
use crate::context::ParameterScope;
use crate::parameters::ParameterInit;
use crate::random::{Dropout, DropoutConfig, DropoutSite};
use crate::tensor_parallel::{
    ColumnGroups, ColumnParallelLinear, ColumnParallelLinearConfig, RowParallelLinear, RowParallelLinearConfig,
    TokenContext, checked,
};
use crate::topology::{TopologyError, check_divides, key_head_copies};
use burn::config::Config;
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use cubecl_kernels::flash_attention::{
    AttentionMask, AttentionOptions, Documents, PackedHeads, flash_attention_packed_with_bias,
};
use cubecl_kernels::random::RowDropout;
use cubecl_kernels::rotary;
use serde::{Deserialize, Serialize};

/// Configuration of [`CausalSelfAttention`].
#[derive(Config, Debug)]
pub struct CausalSelfAttentionConfig {
    /// The size of each token.
    pub d_model: usize,
    /// The number of heads, which divides `d_model` unless `d_head` is given.
    pub n_heads: usize,
    /// The number of key heads, and of value heads, which divides `n_heads`; `n_heads` if not given. Each is shared
    /// by the same number of query heads. Where there are more tensor-parallel ranks, several hold the same key head,
    /// each with its own of the query heads that share it: their terms of its gradient are summed after the backward
    /// pass.
    pub n_kv_heads: Option<usize>,
    /// The size of a head; `d_model / n_heads` if not given.
    pub d_head: Option<usize>,
    /// The order of the heads in the fused projection.
    #[config(default = "HeadOrder::Parts")]
    pub order: HeadOrder,
    /// What the products of queries and keys are multiplied by; `1 / √d_head` if not given.
    pub scale: Option<f64>,
    /// Whether a token sees none of those after it.
    #[config(default = true)]
    pub is_causal: bool,
    /// Whether the fused projection has a bias.
    #[config(default = true)]
    pub qkv_bias: bool,
    /// Whether the output projection has a bias.
    #[config(default = true)]
    pub output_bias: bool,
    /// What RMS norms of each query head and each key head add to the mean of the squares; there are none if not given.
    /// They come before the rotary embedding, and are called `q_norm` and `k_norm`.
    pub qk_norm_epsilon: Option<f64>,
    /// How many keys a query sees at most, itself among them: the last ones; all up to itself if not given.
    pub window: Option<usize>,
    /// The probability with which an attention weight becomes zero.
    #[config(default = 0.0)]
    pub dropout: f64,
    /// How the fused query-key-value projection starts.
    pub qkv_init: ParameterInit,
    /// How the output projection starts.
    pub output_init: ParameterInit,
}

/// The order of the columns of a fused query-key-value projection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HeadOrder {
    /// All query heads, all key heads, all value heads, as GPT-2 has them; each key head has one query head.
    Parts,
    /// One group after the other: its query heads, its key head, its value head, as Megatron-LM has them.
    Groups,
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
pub struct CausalSelfAttention {
    /// Queries, keys and values in the [order](HeadOrder) of their heads, shared out by these.
    pub qkv: ColumnParallelLinear,
    /// The projection back.
    pub output: RowParallelLinear,
    /// The norms of query heads and of key heads, each shared by all of them.
    qk_norms: Option<QkNorms>,
    dropout: Dropout,
    is_causal: bool,
    #[module(skip)]
    order: HeadOrder,
    #[module(skip)]
    rotary: Option<Rotary>,
    #[module(skip)]
    pub(super) alibi: Option<Alibi>,
    #[module(skip)]
    pub(super) window: Option<usize>,
    pub(super) is_deterministic: bool,
    pub(super) n_heads: usize,
    pub(super) n_kv_heads: usize,
    first_head: usize,
    pub(super) d_head: usize,
    pub(super) scale: f64,
}

impl CausalSelfAttentionConfig {
    /// Returns the attention of a layer; its parameters are named by `names` in the context's scope.
    ///
    /// # Errors
    /// When the number of heads does not divide `d_model`, that of key heads not the heads, or the tensor-parallel size
    /// and the number of key heads do not divide one another. When key heads are shared, or queries and keys normed, in
    /// the order of [`HeadOrder::Parts`].
    pub fn init(
        &self,
        dropout_site: DropoutSite,
        names: &CausalSelfAttentionNames,
        device: &Device,
        scope: &ParameterScope,
    ) -> Result<CausalSelfAttention, TopologyError> {
        let group = scope.context().tensor_group();
        let n_kv_heads = self.n_kv_heads.unwrap_or(self.n_heads);
        scope.check_tensor_divides("the number of attention heads", self.n_heads)?;
        check_divides("n_heads", self.n_heads, "n_kv_heads", n_kv_heads)?;
        let key_heads = format!("{}: the number of key heads", scope.name());
        let copies = key_head_copies(&key_heads, n_kv_heads, self.n_heads, group.size())?;
        let d_head = match self.d_head {
            Some(d_head) => d_head,
            None => {
                check_divides("d_model", self.d_model, "n_heads", self.n_heads)?;
                self.d_model / self.n_heads
            }
        };
        let groups = ColumnGroups {
            count: n_kv_heads,
            shared: 2 * d_head,
        };
        let (fused, groups) = match self.order {
            HeadOrder::Groups => (1, Some(groups)),
            HeadOrder::Parts => {
                check_divides(
                    "n_kv_heads in the order of HeadOrder::Parts",
                    n_kv_heads,
                    "n_heads",
                    self.n_heads,
                )?;
                (3, None)
            }
        };
        let qk_norms = self
            .qk_norm_epsilon
            .map(|epsilon| QkNorms::new(d_head, epsilon, device, scope));
        if qk_norms.is_some() && self.order == HeadOrder::Parts {
            let what = "norms of queries and keys need the order of HeadOrder::Groups, got HeadOrder::Parts";
            return Err(TopologyError::Setting(what.to_owned()));
        }
        let n_heads = self.n_heads / group.size();
        let width = self.n_heads * d_head;
        let qkv = ColumnParallelLinearConfig::new(self.d_model, width + 2 * n_kv_heads * d_head)
            .with_fused(fused)
            .with_groups(groups)
            .with_bias(self.qkv_bias)
            .with_weight_init(Some(self.qkv_init))
            .with_bias_init(Some(ParameterInit::Zeros))
            .init(device, &scope.scope(names.qkv))?;
        let output = RowParallelLinearConfig::new(width, self.d_model)
            .with_bias(self.output_bias)
            .with_weight_init(Some(self.output_init))
            .with_bias_init(Some(ParameterInit::Zeros))
            .init(device, &scope.scope(names.output))?;
        Ok(CausalSelfAttention {
            qkv,
            output,
            qk_norms,
            dropout: DropoutConfig::new(self.dropout).init(dropout_site),
            is_causal: self.is_causal,
            order: self.order,
            rotary: None,
            alibi: None,
            window: self.window,
            is_deterministic: scope.context().is_deterministic(),
            n_heads,
            n_kv_heads: n_kv_heads * copies / group.size(),
            first_head: group.rank() * n_heads,
            d_head,
            scale: self.scale.unwrap_or(1.0 / (d_head as f64).sqrt()),
        })
    }
}

impl CausalSelfAttention {
    /// Returns the same attention whose queries and keys are turned by their positions.
    ///
    /// # Panics
    /// When the heads are in the order of [`HeadOrder::Parts`]: the operation takes groups.
    pub fn with_rotary(self, rotary: Rotary) -> Self {
        assert_eq!(
            self.order,
            HeadOrder::Groups,
            "the order of heads that rotary embedding takes"
        );
        Self {
            rotary: Some(rotary),
            ..self
        }
    }

    /// Returns the same attention whose scores fall with the distance between query and key.
    ///
    /// # Panics
    /// When the slopes are those of another number of heads.
    pub fn with_alibi(self, alibi: Alibi) -> Self {
        assert_eq!(alibi.num_heads(), self.n_heads, "slopes against this rank's heads");
        Self {
            alibi: Some(alibi),
            ..self
        }
    }

    /// Which keys a query sees.
    pub(super) fn mask(&self) -> AttentionMask {
        match self.window {
            _ if !self.is_causal => AttentionMask::Full,
            Some(window) => AttentionMask::CausalWindow(window),
            None => AttentionMask::Causal,
        }
    }
}

impl CausalSelfAttention {
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
    pub fn forward(&self, input: Tensor<2>, tokens: &TokenContext) -> Tensor<2> {
        self.output
            .forward_at(self.forward_heads(input, tokens), Some(&tokens.all))
    }

    /// As [`forward`](Self::forward), without the last bias, which is returned too, to be added by what comes next.
    pub fn forward_without_bias(&self, input: Tensor<2>, tokens: &TokenContext) -> (Tensor<2>, Option<Tensor<1>>) {
        self.output
            .forward_without_bias_at(self.forward_heads(input, tokens), Some(&tokens.all))
    }

    /// Returns what this rank's heads give, before the projection back.
    ///
    /// # Shapes
    /// - `input`: as of [`forward`](Self::forward)
    /// - output: `[batch * seq, heads / tp * d_head]`
    ///
    /// # Communication
    /// That of a column-parallel layer.
    ///
    /// # Panics
    /// As [`forward`](Self::forward).
    pub fn forward_heads(&self, input: Tensor<2>, tokens: &TokenContext) -> Tensor<2> {
        self.attend(input, None, tokens)
    }

    /// As [`forward_without_bias`](Self::forward_without_bias) with a bias that is added to the scores of this rank's
    /// heads.
    ///
    /// # Shapes
    /// - `position_bias`: `[heads / tp, 2 * seq - 1]`, as of
    ///   [`flash_attention_with_bias`](cubecl_kernels::flash_attention::flash_attention_with_bias); in f32, or in f64
    ///   where the input is
    pub fn forward_with_position_bias(
        &self,
        input: Tensor<2>,
        position_bias: Option<Tensor<2>>,
        tokens: &TokenContext,
    ) -> (Tensor<2>, Option<Tensor<1>>) {
        let heads = self.attend(input, position_bias, tokens);
        self.output.forward_without_bias_at(heads, Some(&tokens.all))
    }

    fn attend(&self, input: Tensor<2>, position_bias: Option<Tensor<2>>, tokens: &TokenContext) -> Tensor<2> {
        let qkv = self.qkv.forward_at(input, Some(&tokens.all));
        let (seq, heads, d_head) = (tokens.seq_length, self.n_heads, self.d_head);
        let batch = qkv.dims()[0] / seq;
        let positions = RotaryPositions::OnHost(match &tokens.positions {
            Some(positions) => HostPositions::Given(positions.clone()),
            None => HostPositions::Samples {
                count: batch,
                seq_length: seq,
            },
        });
        let parts = self.parts();
        let packed = self.pack(qkv, positions);
        let packed = packed.reshape([batch, seq, parts.queries + 2 * parts.keys, d_head]);
        let dropout = self
            .dropout
            .of_attention(&tokens.all, self.first_head, &packed.device());
        let output = self.attend_packed(packed, position_bias, dropout, tokens.documents.clone());
        output.reshape([batch * seq, heads * d_head])
    }

    /// `[batch, seq, heads + 2 * kv_heads, d_head]` of whole samples to `[batch, seq, heads, d_head]`.
    pub(super) fn attend_packed(
        &self,
        packed: Tensor<4>,
        position_bias: Option<Tensor<2>>,
        dropout: Option<RowDropout>,
        documents: Option<Documents>,
    ) -> Tensor<4> {
        let (parts, [_, seq, ..]) = (self.parts(), packed.dims());
        let options = AttentionOptions {
            mask: self.mask(),
            scale: self.scale,
            dropout,
            documents,
            key_lengths: None,
            is_deterministic: self.is_deterministic,
        };
        let bias = position_bias.or_else(|| {
            let alibi = self.alibi.as_ref();
            alibi.map(|alibi| alibi.biases(seq, packed.dtype(), &packed.device()))
        });
        checked(flash_attention_packed_with_bias(packed, parts, bias, options))
    }

    /// How many heads of each kind are here.
    pub(super) fn parts(&self) -> PackedHeads {
        PackedHeads {
            queries: self.n_heads,
            keys: self.n_kv_heads,
        }
    }

    /// What the fused projection gives to `[tokens, heads + 2 * kv_heads, d_head]`: queries, keys, values, turned by
    /// their positions.
    pub(super) fn pack(&self, qkv: Tensor<2>, positions: RotaryPositions) -> Tensor<3> {
        let ([tokens, _], d_head) = (qkv.dims(), self.d_head);
        let PackedHeads { queries, keys } = self.parts();
        match self.order {
            HeadOrder::Parts => qkv.reshape([tokens, queries + 2 * keys, d_head]),
            HeadOrder::Groups => {
                let rotary = self.rotary.as_ref();
                let angles = rotary.map(|rotary| rotary.angles(positions, qkv.dtype(), &qkv.device()));
                let grouped = qkv.reshape([tokens, keys, queries / keys + 2, d_head]);
                let grouped = match &self.qk_norms {
                    Some(norms) => norms.forward(grouped),
                    None => grouped,
                };
                checked(rotary::rotary(grouped, angles))
            }
        }
    }
}
