//! burn's tests of autodiff, without and with checkpointing.

#![recursion_limit = "256"]
#![allow(unused_imports, clippy::single_range_in_vec_init, clippy::duplicate_mod)]

extern crate alloc;

pub type FloatElem = f32;
pub type IntElem = i32;
pub type TestBackend = burn_autodiff::Autodiff<Sharded>;

#[path = "../src/backend.rs"]
mod backend;
pub use backend::*;

/// Gradients are those of the backend.
pub struct AutodiffDevice;

impl AutodiffDevice {
    #[allow(clippy::new_ret_no_self)]
    pub fn new() -> burn_flex::FlexDevice {
        burn_flex::FlexDevice
    }
}

#[path = "../vendored/autodiff/mod.rs"]
mod autodiff;

mod checkpointing {
    pub type TestBackend = burn_autodiff::Autodiff<super::Sharded, BalancedCheckpointing>;
    pub type TestTensor<const D: usize> = burn_tensor::Tensor<TestBackend, D>;
    pub type TestTensorInt<const D: usize> = burn_tensor::Tensor<TestBackend, D, burn_tensor::Int>;
    pub type TestTensorBool<const D: usize> = burn_tensor::Tensor<TestBackend, D, burn_tensor::Bool>;

    use burn_autodiff::checkpoint::strategy::BalancedCheckpointing;

    include!("../vendored/autodiff/mod.rs");
}
