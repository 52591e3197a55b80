//! The sharded backend in place of the one that burn tests, and its tensors.

use super::*;

pub use burn_backend_tests::{Placed, PlacedRange};
pub use burn_tensor::Tensor;

pub type Sharded = burn_megatron::sharded::Sharded<burn_flex::Flex>;
pub type TestTensor<const D: usize> = Tensor<TestBackend, D>;
pub type TestTensorInt<const D: usize> = Tensor<TestBackend, D, burn_tensor::Int>;
pub type TestTensorBool<const D: usize> = Tensor<TestBackend, D, burn_tensor::Bool>;

extern "C" fn set_default_types() {
    let types = (
        <FloatElem as burn_tensor::Element>::dtype(),
        <IntElem as burn_tensor::Element>::dtype(),
    );
    burn_tensor::set_default_dtypes::<Sharded>(&Default::default(), types.0, types.1).expect("there is no tensor yet");
}

extern "C" fn report() {
    burn_backend_tests::report();
}

// SAFETY: the linker takes functions of this signature from these sections: the first runs before `main`, the other
// when the process exits.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = set_default_types;
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = report;
