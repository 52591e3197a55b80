//! Four burn models as their authors wrote them, for one device: nothing here knows of ranks.
//!
//! The tests train each of them in every layout, with `burn_megatron::sharded`. With the feature `fused` there is a
//! fifth, of the fused operations of `cubecl-kernels`.

pub mod classifier;
pub mod convolutional;
#[cfg(feature = "fused")]
pub mod fused_gpt;
pub mod gpt;
pub mod recurrent;
