//! Attention whose heads are shared out over the tensor-parallel group.
//!
//! [`CausalSelfAttention`] has one fused projection and works on `[batch * seq, d_model]`, as the bundled models do,
//! and [`CrossAttention`] attends to another sequence; [`ParallelMultiHeadAttention`] is made from burn's
//! `MultiHeadAttention` and is called as it.

mod alibi;
mod cache;
mod causal;
mod cross;
mod heads;
mod multi_head;
mod paged;
mod per_device;
mod qk_norms;
mod rotary;

pub use alibi::Alibi;
pub use cache::{MhaCache, TensorCache};
pub use causal::{CausalSelfAttention, CausalSelfAttentionConfig, CausalSelfAttentionNames, HeadOrder};
pub use cross::{CrossAttention, CrossAttentionConfig, CrossAttentionNames, MemoryTokens};
pub use multi_head::{MhaInput, MhaOutput, ParallelMultiHeadAttention};
pub use paged::{PageSizes, PagedKeyValues, PagedSequence, PagedTokens};
pub use qk_norms::QkNorms;
pub use rotary::{Rotary, RotaryConfig};

pub(super) use heads::AttentionMasks;
