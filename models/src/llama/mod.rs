//! Llama 2 and 3, Mistral, Qwen2 and Qwen3: decoder-only transformers with rotary positions, RMS norms, gated MLPs and
//! shared key heads.
//!
//! They are one family: Qwen2 has biases in its query-key-value projections, Qwen3 norms of queries and keys, Llama 3.1
//! changes its rotary frequencies for longer texts. Parameter names are those of Hugging Face's files, except for
//! projections that are one here: `self_attn.qkv_proj` and `mlp.gate_up_proj`.

mod config;
mod family;
mod huggingface;
mod model;
mod presets;

pub use config::LlamaConfig;
pub use presets::LlamaPreset;
