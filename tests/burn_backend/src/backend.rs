//! The slot's device in place of the one that burn tests, and its tensors.

use super::*;

pub use burn_backend_tests::{Placed, PlacedRange};
pub use burn_tensor::Tensor;

pub type TestTensor<const D: usize> = Tensor<D>;
pub type TestTensorInt<const D: usize> = Tensor<D, burn_tensor::Int>;
pub type TestTensorBool<const D: usize> = Tensor<D, burn_tensor::Bool>;

extern "C" fn prepare() {
    use burn_tensor::Element;
    burn_backend_tests::prepare(FloatElem::dtype(), IntElem::dtype());
}

extern "C" fn report() {
    burn_backend_tests::report();
}

// SAFETY: the linker takes functions of this signature from these sections: the first runs before `main`, the other
// when the process exits.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = prepare;
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = report;
