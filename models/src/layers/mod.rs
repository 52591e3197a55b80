//! Layers that transformers share: blocks, MLPs, the parts that stages hold, recomputation.
//!
//! Parameters have the names that a family gives them.

mod activation;
mod block;
mod mlp;
mod norm;
mod output_head;
mod part;
mod recompute;
mod relative_bias;
mod rows;
mod segmentation;
mod sums;

pub use activation::{gelu_erf, gelu_tanh};
pub use block::{Block, BlockConfig, BlockNames, Residual};
pub use burn_megatron::tensor_parallel::{
    Alibi, CausalSelfAttention, CausalSelfAttentionConfig, CausalSelfAttentionNames, CrossAttention,
    CrossAttentionConfig, CrossAttentionNames, HeadOrder, MemoryTokens, Rotary, RotaryConfig, TokenContext,
};
pub use mlp::{Mlp, MlpActivation, MlpConfig, MlpNames};
pub use norm::{Norm, NormType};
pub use output_head::OutputHead;
pub use part::{ModelError, ModelPart, validate_head_size};
pub use recompute::{LayerRecompute, Segment};
pub use relative_bias::{DistanceBuckets, RelativeBias};
pub use rows::drop_rows;
pub use segmentation::Segmentation;
pub(crate) use sums::{Sums, WithoutBias};
