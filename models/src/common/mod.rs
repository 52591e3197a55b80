//! Blocks that transformers share.

mod activation;
mod block;
mod mlp;

pub use activation::gelu_tanh;
pub use block::{Block, BlockConfig};
pub use burn_megatron::tensor_parallel::{CausalSelfAttention, CausalSelfAttentionConfig, TokenContext};
pub use mlp::{Mlp, MlpConfig};
