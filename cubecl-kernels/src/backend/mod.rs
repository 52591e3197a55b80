//! Forms of the operations that each backend runs: vectorised on Flex, kernels on CubeCL's backends, custom operations
//! with fusion, nodes with the backward rules here for autodiff. Another backend has an empty implementation: every
//! method's default is the reference.

mod autodiff;
#[cfg(feature = "cubecl")]
mod cube;
mod flex;
#[cfg(feature = "fusion")]
mod fusion;
#[cfg(feature = "ndarray")]
mod ndarray;
