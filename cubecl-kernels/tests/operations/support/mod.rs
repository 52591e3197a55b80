//! Backends that run here, comparisons, inputs and counted memory, which the claims share.

pub(super) mod allocation;
pub(super) mod alone;
pub(super) mod backends;
pub(super) mod compare;
#[cfg(feature = "cuda")]
pub(super) mod cuda;
pub(super) mod dropout;
pub(super) mod layouts;
