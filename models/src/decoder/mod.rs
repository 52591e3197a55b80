//! Transformers of one stack of blocks: what GPT, Llama and their like share, and BERT, whose tokens see both
//! directions.
//!
//! A family says by a [`DecoderConfig`] what its blocks are made of and what its parameters are called; this is the one
//! model of all of them, in training, scoring and generation.

mod adapters;
mod config;
mod generation;
mod masked;
mod model;
mod scoring;
mod sizes;

pub use config::{DecoderConfig, DecoderNames, MaskedTokenConfig, MaskedTokenNames, Positions, weight_inits};
pub use masked::{MaskedTokenHead, PairHead};
pub use model::Decoder;
pub use sizes::BiasedSizes;
