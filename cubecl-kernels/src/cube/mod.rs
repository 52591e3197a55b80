//! Parts of kernels in CubeCL: launches ([`launch`]), how units are laid over a matrix ([`walk`]), reductions over a
//! row's units ([`reduce`]) and over rows ([`columns`]), random numbers ([`dropout`]), mathematics ([`math`]), NVIDIA's
//! own instructions ([`nvidia`]).

pub(crate) mod columns;
pub mod dropout;
pub mod launch;
pub(crate) mod math;
pub(crate) mod nvidia;
pub(crate) mod parts;
pub mod reduce;
pub(crate) mod tables;
pub(crate) mod walk;
