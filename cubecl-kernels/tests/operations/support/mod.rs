//! Devices that run here, comparisons, inputs and counted memory, which the claims share.

pub(super) mod allocation;
pub(super) mod compare;
pub(super) mod dropout;
#[cfg(feature = "cuda")]
pub(super) mod emulator;
pub(super) mod layouts;
pub(super) mod setting;
