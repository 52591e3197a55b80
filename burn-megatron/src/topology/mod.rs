//! Integers only: which ranks exist, how they are arranged in a grid, and which of them form groups.
//!
//! All other modules may use this one; it uses none of them. It has no sockets and no tensors.

mod config;
mod grid;
mod hosts;
#[cfg(test)]
mod tests;

pub(crate) use config::nearest_multiples;
pub use config::{ParallelConfig, TopologyError, check_divides, key_head_copies};
pub use grid::{Coordinates, GroupKind, RankGrid};
pub(crate) use hosts::SplitTensorGroups;
