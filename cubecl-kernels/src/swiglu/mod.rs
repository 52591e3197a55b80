//! `silu(gate) ∘ up`, the gated activation of Llama's MLP, in one pass.

mod flex;
pub mod host;
#[cfg(feature = "cubecl")]
mod kernel;
#[cfg(feature = "cubecl")]
mod launch;
mod reference;

use burn::tensor::Tensor;
#[cfg(feature = "cubecl")]
use burn_cubecl::tensor::CubeTensor;
use burn_flex::FlexTensor;

use crate::error::{Check, KernelError};
use crate::operation::parts::{Names, PartRule};
use crate::operation::{Operation, Spec, apply};
use crate::tape::{inner, keep, record};

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
    let [_, columns] = input.dims();
    check.float("the input", input.dtype(), &input.device())?;
    check.value("the input's columns", columns as f64, columns.is_multiple_of(2), || {
        "even".to_owned()
    })?;
    let x = inner(&input);
    let output = apply(&Forward, x.clone());
    let x = keep(x);
    Ok(record(input, output, move |gradient, _| {
        Some(apply(&Backward, [x.get(), gradient]))
    }))
}

/// `[gate | up]` to `silu(gate) ∘ up`.
#[derive(Clone, Copy, Debug)]
struct Forward;

impl Operation for Forward {
    type Inputs = Tensor<2>;
    type Outputs = Tensor<2>;

    const NAME: &'static str = "swiglu";

    fn outputs(&self, (mut shape, dtype): Spec) -> Spec {
        shape[1] /= 2;
        (shape, dtype)
    }

    fn part_rule(&self, _input: Spec) -> Option<PartRule> {
        Names::of::<Self>("r.", "r.").rule()
    }

    fn reference(&self, input: Tensor<2>) -> Tensor<2> {
        reference::forward(input)
    }

    fn flex(&self, input: FlexTensor) -> FlexTensor {
        flex::forward(input)
    }

    #[cfg(feature = "cubecl")]
    fn cube(&self, input: CubeTensor) -> CubeTensor {
        launch::forward(input)
    }
}

/// `[gate | up]` and the output's gradient to the input's.
#[derive(Clone, Copy, Debug)]
struct Backward;

impl Operation for Backward {
    type Inputs = [Tensor<2>; 2];
    type Outputs = Tensor<2>;

    const NAME: &'static str = "swiglu_backward";

    fn outputs(&self, [input, _]: [Spec; 2]) -> Spec {
        input
    }

    fn part_rule(&self, _inputs: [Spec; 2]) -> Option<PartRule> {
        Names::of::<Self>(["r."; 2], "r.").linear_in_last().rule()
    }

    fn reference(&self, [input, gradient]: [Tensor<2>; 2]) -> Tensor<2> {
        reference::backward(input, gradient)
    }

    fn flex(&self, [input, gradient]: [FlexTensor; 2]) -> FlexTensor {
        flex::backward(input, gradient)
    }

    #[cfg(feature = "cubecl")]
    fn cube(&self, [input, gradient]: [CubeTensor; 2]) -> CubeTensor {
        launch::backward(input, gradient)
    }
}
