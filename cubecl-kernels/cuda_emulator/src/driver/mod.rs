//! The driver: what `libcuda.so` exports, as far as `cubecl-cuda` and engines of NCCL call it.

mod attributes;
mod copy;
pub mod device;
pub mod error;
mod event;
mod launch;
pub mod memory;
mod module;
mod pointers;
mod values;
