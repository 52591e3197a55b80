//! burn's tests of tensors of floats, in f16.

#![recursion_limit = "256"]
#![allow(deprecated, unused_imports, clippy::single_range_in_vec_init)]

extern crate alloc;

pub type FloatElem = burn_tensor::f16;
pub type IntElem = i32;

#[path = "../src/backend.rs"]
mod backend;
pub use backend::*;

#[path = "../vendored/tensor/float/mod.rs"]
mod f16;
