//! The norms' kernels: a row is read once, held by the units that share it, and written once; the backward pass of rows
//! too long for that reads them twice.

pub(super) mod backward;
pub(super) mod forward;
pub(super) mod shared;
pub(super) mod wide;
