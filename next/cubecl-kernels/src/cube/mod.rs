//! Parts of kernels in CubeCL: launches ([`launch`]), how units are laid over a matrix ([`walk`]), mathematics
//! ([`math`]).

pub(crate) mod launch;
pub(crate) mod math;
pub(crate) mod walk;
