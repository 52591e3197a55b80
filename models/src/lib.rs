//! Models built from burn-megatron's parallel layers.
//!
//! [`gpt`] is the bundled GPT-2/3; [`common`] has the blocks that transformers share. There is one model for every
//! layout: at tensor size 1 it is the serial one.

pub mod common;
pub mod gpt;
