//! GPT-2/3: a decoder-only transformer with learned positions.
//!
//! Parameter names are those of Hugging Face's GPT-2 (`wte.weight`, `h.0.attn.c_attn.weight`, …).

mod config;
pub mod huggingface;
mod memory;
mod model;
mod recompute;

pub use config::{GptConfig, GptError, GptPreset};
pub use memory::MemorySetting;
pub use model::Gpt;
pub use recompute::LayerRecompute;
