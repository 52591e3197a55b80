//! BERT: a transformer whose tokens see each other in both directions, which predicts masked tokens and tells whether
//! one sentence follows another.
//!
//! With norms before the sublayers, as Megatron-LM and transformers' `megatron-bert` have it, or after them, as the
//! original. Parameter names are those of Hugging Face's files, except for projections that are one here:
//! `attention.self.qkv`.

mod config;
mod family;
mod huggingface;
mod model;
mod presets;

pub use config::{BertConfig, NormOrder};
pub use presets::BertPreset;
