//! Any burn model on many ranks by the placements of its parameters, on burn 0.22: see [`sharded`].
//!
//! The README of the workspace lists what is here so far, and what is not.

pub mod collectives;
pub mod launch;
pub mod parameters;
pub mod parity;
pub mod random;
pub mod sharded;
mod topology;

pub use launch::run;
