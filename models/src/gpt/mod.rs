//! GPT-2/3: a decoder-only transformer with learned positions.
//!
//! Parameter names are those of Hugging Face's GPT-2 (`wte.weight`, `h.0.attn.c_attn.weight`, …).

mod config;
mod family;
mod huggingface;
mod model;

pub use config::{GptConfig, GptPreset};
pub use model::Gpt;
