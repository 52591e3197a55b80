//! Four burn models as their authors wrote them, for one device: nothing here knows of ranks.
//!
//! The tests train each of them in every layout, with `burn_megatron::sharded`.

pub mod classifier;
pub mod convolutional;
pub mod gpt;
pub mod recurrent;
