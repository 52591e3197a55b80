//! What the forms of the operations for the CPU are made of; their `flex.rs` call it.
//!
//! An operation splits its rows into blocks, which run as rayon tasks ([`blocks`]). A block is one call of
//! [`math::vectorised`], which chooses the vector instructions; inside, each row is mapped and added up in fixed lanes
//! ([`lanes`]), and rows of 16 bits pass through a row of f32 ([`number`]). Neither blocks nor lanes depend on the
//! machine or on the number of threads, so neither do the results.

pub(crate) mod blocks;
mod cores;
pub(crate) mod dropout;
pub(crate) mod lanes;
pub(crate) mod math;
pub(crate) mod number;
pub(crate) mod product;
pub(crate) mod tensor;
