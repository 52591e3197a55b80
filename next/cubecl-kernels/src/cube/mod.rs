//! What the kernels in CubeCL are made of: launches ([`launch`]), how units are laid over a matrix ([`walk`]),
//! mathematics ([`math`]), and instructions of NVIDIA's GPUs ([`nvidia`]).

pub(crate) mod launch;
pub(crate) mod math;
pub(crate) mod nvidia;
pub(crate) mod walk;
