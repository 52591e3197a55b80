//! Fused operations for burn, forward and backward, in CubeCL and for the CPU.
//!
//! Each is a type that implements [`Operation`]: its shapes, its form for each kind of device, its backward rule. It
//! has a folder with its kernels, and a line here.

pub mod adamw;
#[cfg(feature = "cuda")]
mod cube;
mod error;
mod flex;
pub mod operation;
mod precision;
pub mod swiglu;

pub use error::KernelError;
pub use operation::Operation;
