//! burn's tests of tensors, in its default types.

#![recursion_limit = "256"]
#![allow(unused_imports, clippy::single_range_in_vec_init)]

extern crate alloc;

pub type FloatElem = f32;
pub type IntElem = i32;
pub type TestBackend = Sharded;

#[path = "../src/backend.rs"]
mod backend;
pub use backend::*;

#[path = "../vendored/tensor/mod.rs"]
mod tensor;
