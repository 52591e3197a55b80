//! [`Kernels`]: the one switch between an operation's kernels and its reference.

use std::cell::Cell;

/// Forms in which a thread's operations run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kernels {
    /// Kernels of this crate.
    #[default]
    Fused,
    /// References, in burn's own operations, in forward and backward pass: to compare with, and to find a fault by.
    Plain,
}

thread_local! {
    static KERNELS: Cell<Kernels> = const { Cell::new(Kernels::Fused) };
}

/// Chooses the form in which operations run from now on, of those that this thread calls. A backward pass runs on the
/// thread that calls it.
pub fn set_kernels(kernels: Kernels) {
    KERNELS.set(kernels);
}

/// Returns the form in which this thread's operations run.
pub fn kernels() -> Kernels {
    KERNELS.get()
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Tensor};
    #[cfg(feature = "cubecl")]
    use burn_cubecl::tensor::CubeTensor;
    use burn_flex::FlexTensor;

    use super::*;
    use crate::operation::{Operation, Spec, apply};

    /// Adds one in its reference alone.
    #[derive(Clone, Debug)]
    struct AddOne;

    impl Operation for AddOne {
        type Inputs = Tensor<1>;
        type Outputs = Tensor<1>;

        const NAME: &'static str = "add_one";

        fn outputs(&self, input: Spec) -> Spec {
            input
        }

        fn reference(&self, input: Tensor<1>) -> Tensor<1> {
            input + 1.0
        }

        fn flex(&self, input: FlexTensor) -> FlexTensor {
            input
        }

        #[cfg(feature = "cubecl")]
        fn cube(&self, input: CubeTensor) -> CubeTensor {
            input
        }
    }

    #[test]
    fn plain_operations_run_their_references_on_the_thread_that_says_so() {
        let run = || {
            let output = apply(&AddOne, Tensor::zeros([1], &Device::flex()));
            output.into_scalar::<f32>()
        };
        set_kernels(Kernels::Plain);
        assert_eq!(run(), 1.0);
        assert_eq!(std::thread::spawn(run).join().expect("it does not panic"), 0.0);
        set_kernels(Kernels::Fused);
        assert_eq!(run(), 0.0);
    }
}
