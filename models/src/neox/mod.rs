//! GPT-NeoX and Pythia: decoder-only transformers whose attention and MLP read the residual stream at once, and whose
//! rotary positions turn a part of each head.
//!
//! Parameter names are those of Hugging Face's GPT-NeoX (`embed_in.weight`,
//! `layers.0.attention.query_key_value.weight`, …).

mod config;
mod family;
mod huggingface;
mod model;
mod presets;

pub use config::NeoxConfig;
pub use presets::NeoxPreset;
