//! Blocks that transformers share. Called by the models.

mod activation;
mod attention;
mod block;
mod mlp;
mod tokens;

pub use activation::gelu_tanh;
pub use attention::{CausalSelfAttention, CausalSelfAttentionConfig};
pub use block::{Block, BlockConfig};
pub use mlp::{Mlp, MlpConfig};
pub use tokens::TokenContext;
