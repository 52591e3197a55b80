//! T5: an encoder of a text with spans left out, and a decoder that writes the spans.
//!
//! Both are in one pipeline: the encoder's layers come first, then the decoder's, so a stage may have layers of one, of
//! the other, or the last of the one and the first of the other. What later stages need travels with the activation:
//! the decoder's embedded tokens through the encoder's stages, the encoder's output through the decoder's, and the
//! numbers of the relative position bias, which all layers of one half share. Megatron-LM puts a part of the encoder
//! and a part of the decoder on each stage instead, since its core takes encoders that way; here no stage waits for
//! both.
//!
//! As in Megatron-LM, nothing is dropped between the MLP's two layers, where transformers drops, too. Parameter names
//! are those of Hugging Face's files, except for projections that are one here.

mod adapters;
mod config;
mod decoder_block;
mod family;
mod huggingface;
mod init;
mod model;
mod names;
mod presets;
mod stream;

pub use config::T5Config;
pub use decoder_block::DecoderBlock;
pub use model::T5;
