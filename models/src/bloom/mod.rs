//! BLOOM: decoder-only transformers whose scores fall with distance (ALiBi), and whose embeddings are normed.
//!
//! Parameter names are those of Hugging Face's BLOOM (`word_embeddings.weight`,
//! `h.0.self_attention.query_key_value.weight`, …).

mod config;
mod family;
mod huggingface;
mod model;
mod presets;

pub use config::BloomConfig;
pub use presets::BloomPreset;
