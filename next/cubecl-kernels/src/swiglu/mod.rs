//! `silu(gate) ∘ up`, the gated activation of Llama's MLP, in one pass.

mod flex;
pub mod host;
#[cfg(feature = "cuda")]
mod kernel;
#[cfg(feature = "cuda")]
mod launch;
mod reference;

use burn::backend::{DispatchTensor, TensorMetadata};
use burn::tensor::Tensor;
#[cfg(feature = "cuda")]
use burn_cubecl::tensor::CubeTensor;
use burn_flex::FlexTensor;

use crate::error::{Check, KernelError};
use crate::operation::{Differentiable, Operation, Rule, Spec, apply, apply_tracked};

/// Beyond ± this, `silu(x)` is `x` or 0 to the last digit of f64, and its derivative 1 or 0.
const FAR: f64 = 800.0;

/// Applies `silu(gate) ∘ up` to `[gate | up]`, with `silu(x) = x · sigmoid(x)`.
///
/// At ±∞, `silu` and its derivative are their limits: 0 and 0, ∞ and 1. Of NaN they are NaN.
///
/// # Shapes
/// - `input`: `[rows, 2 * columns]`, the gate's columns first
/// - output: `[rows, columns]`
///
/// # Errors
/// When the number of columns is odd, or the type is not computed with.
///
/// # Reference
/// Shazeer 2020, arXiv:2002.05202, section 2.
pub fn swiglu(input: Tensor<2>) -> Result<Tensor<2>, KernelError> {
    let check = Check("swiglu");
    let columns = input.dims()[1];
    let input = input.into_dispatch();
    check.float("the input", input.dtype(), &input.device())?;
    check.value("the input's columns", columns as f64, columns.is_multiple_of(2), || {
        "even".to_owned()
    })?;
    Ok(Tensor::from_dispatch(apply_tracked(&Forward, [input])))
}

/// `[gate | up]` to `silu(gate) ∘ up`.
#[derive(Clone, Copy, Debug)]
struct Forward;

impl Operation<1, 1> for Forward {
    const NAME: &'static str = "swiglu";

    fn outputs(&self, [(mut shape, dtype)]: [Spec; 1]) -> [Spec; 1] {
        shape[1] /= 2;
        [(shape, dtype)]
    }

    fn reference(&self, inputs: [DispatchTensor; 1]) -> [DispatchTensor; 1] {
        let [input] = inputs.map(Tensor::from_dispatch);
        [reference::forward(input).into_dispatch()]
    }

    fn flex(&self, [input]: [FlexTensor; 1]) -> [FlexTensor; 1] {
        [flex::forward(input)]
    }

    #[cfg(feature = "cuda")]
    fn cube(&self, [input]: [CubeTensor; 1]) -> [CubeTensor; 1] {
        [launch::forward(input)]
    }
}

impl Differentiable<1> for Forward {
    fn rule(&self, [input]: [DispatchTensor; 1], _output: DispatchTensor) -> Rule<1> {
        Box::new(|gradient, _| {
            let [gradient] = apply(&Backward, [input, gradient]);
            [Some(gradient)]
        })
    }
}

/// `[gate | up]` and the output's gradient to the input's.
#[derive(Clone, Copy, Debug)]
struct Backward;

impl Operation<2, 1> for Backward {
    const NAME: &'static str = "swiglu_backward";

    fn outputs(&self, [input, _]: [Spec; 2]) -> [Spec; 1] {
        [input]
    }

    fn reference(&self, inputs: [DispatchTensor; 2]) -> [DispatchTensor; 1] {
        let [input, gradient] = inputs.map(Tensor::from_dispatch);
        [reference::backward(input, gradient).into_dispatch()]
    }

    fn flex(&self, [input, gradient]: [FlexTensor; 2]) -> [FlexTensor; 1] {
        [flex::backward(input, gradient)]
    }

    #[cfg(feature = "cuda")]
    fn cube(&self, [input, gradient]: [CubeTensor; 2]) -> [CubeTensor; 1] {
        [launch::backward(input, gradient)]
    }
}
