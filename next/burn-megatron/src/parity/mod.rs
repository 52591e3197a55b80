//! Does a sharded run compute what one rank computes? Losses, gradients and parameters, and how far they may differ.

mod compare;
mod tolerance;

pub use compare::{Judge, PartDifference, compare_shard};
pub use tolerance::Tolerance;
