//! The norms' kernels: a row is read once, held by the units that share it, and written once.
//!
//! Launched by `launch.rs`.

pub(super) mod backward;
pub(super) mod forward;
