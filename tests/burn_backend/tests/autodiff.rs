//! burn's tests of autodiff, without and with checkpointing.

#![recursion_limit = "256"]
#![allow(deprecated, unused_imports, clippy::single_range_in_vec_init, clippy::duplicate_mod)]

extern crate alloc;

pub type FloatElem = f32;
pub type IntElem = i32;

#[path = "../src/backend.rs"]
mod backend;
pub use backend::*;

pub struct AutodiffDevice;

impl AutodiffDevice {
    #[allow(clippy::new_ret_no_self)]
    pub fn new() -> burn_tensor::Device {
        burn_tensor::Device::default().autodiff()
    }
}

#[path = "../vendored/autodiff/mod.rs"]
mod autodiff;

mod checkpointing {
    pub struct AutodiffDevice;

    impl AutodiffDevice {
        #[allow(clippy::new_ret_no_self)]
        pub fn new() -> burn_tensor::Device {
            super::AutodiffDevice::new().gradient_checkpointing()
        }
    }

    include!("../vendored/autodiff/mod.rs");
}
