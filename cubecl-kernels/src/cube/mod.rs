//! What the kernels in CubeCL share: reductions over a row's units, the random numbers, and how kernels are launched.

// Of what the macro `cube` makes of a function.
#![allow(missing_docs)]

pub mod columns;
pub mod dropout;
pub mod launch;
pub mod math;
pub mod nvidia;
pub mod parts;
pub mod reduce;
pub mod tables;
pub mod walk;
