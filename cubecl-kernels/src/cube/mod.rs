//! What the kernels in CubeCL share.

pub mod dropout;
