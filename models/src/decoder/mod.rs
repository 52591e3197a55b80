//! Decoder-only transformers: what GPT, Llama and their like share.
//!
//! A family says by a [`DecoderConfig`] what its blocks are made of and what its parameters are called; this is the one
//! model of all of them, in training, scoring and generation.

mod adapters;
mod config;
mod generation;
mod model;
mod scoring;
mod sizes;

pub use config::{DecoderConfig, DecoderNames, Positions, weight_inits};
pub use model::Decoder;
pub use sizes::BiasedSizes;
