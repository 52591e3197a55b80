//! burn's tests of tensors, in its default types.

#![recursion_limit = "256"]
#![allow(deprecated, unused_imports, clippy::single_range_in_vec_init)]

extern crate alloc;

pub type FloatElem = f32;
pub type IntElem = i32;

#[path = "../src/backend.rs"]
mod backend;
pub use backend::*;

#[path = "../vendored/linalg/mod.rs"]
mod linalg;
#[path = "../vendored/signal/mod.rs"]
mod signal;
#[path = "../vendored/tensor/mod.rs"]
mod tensor;
