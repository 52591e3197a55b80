#[allow(unused_imports)]
pub use super::*; // re-export test types

mod activation;
mod grid;
mod module;
mod ops;
mod primitive;
mod stats;

#[cfg(feature = "quantization")]
mod quantization;
