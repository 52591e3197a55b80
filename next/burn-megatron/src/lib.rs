//! Any burn model on many ranks by the placements of its parameters, on burn 0.22: see [`sharded`].
//!
//! The README of the workspace lists what is here so far, and what is not.

#![allow(dead_code, unused_imports, reason = "the modules that use them are not here yet")]

pub mod autodiff;
pub mod collectives;
pub mod context;
pub mod launch;
pub mod mappings;
pub mod parameters;
pub mod parity;
#[doc(hidden)]
pub mod precision;
pub mod prelude;
pub mod random;
pub mod sharded;
pub mod tensor_parallel;
pub mod topology;

pub use launch::run;
pub use parameters::initialize;
