//! Integers only: which ranks exist, how they are arranged in a grid, and which of them form groups.
//!
//! Everything else asks this room; it asks nobody. No sockets, no tensors.

mod config;
mod grid;
#[cfg(test)]
mod tests;

pub use config::check_divides;
pub(crate) use config::nearest_multiples;
pub use config::{ParallelConfig, TopologyError};
pub use grid::{Coordinates, GroupKind, RankGrid};
