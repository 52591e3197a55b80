//! GELU in its tanh form of `input + bias`, in one pass; the backward pass computes the sum again instead of keeping
//! it.

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
#[cfg(feature = "cubecl")]
use cubecl::client::Client;

use crate::accumulate::vectors::{VectorDestination, VectorSums, add_each};
use crate::error::{Check, KernelError};
use crate::operation::parts::{Names, PartRule};
use crate::operation::{Of, Operation, Spec, apply};
#[cfg(feature = "cubecl")]
use crate::sums::are_written;
use crate::sums::{GradientPlace, GradientSums};
use crate::tape::{inner, keep, record};

/// `2 √(2/π)`
const SLOPE: f64 = 2.0 * std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2;
/// The polynomial's coefficient.
const CUBE: f64 = 0.044715;
/// Beyond ± this, the function is `x` or 0 to the last digit of f64, and its derivative 1 or 0.
const FAR: f64 = 64.0;

/// Applies `gelu(input + bias)` with `gelu(x) = x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))`.
///
/// At ±∞ function and derivative are their limits: 0 and 0, ∞ and 1. Of NaN they are NaN.
///
/// # Shapes
/// - `input`: `[rows, columns]`
/// - `bias`: `[columns]`
/// - output: as `input`
///
/// # Errors
/// When shapes or types do not fit.
///
/// # Reference
/// Hendrycks and Gimpel 2016, arXiv:1606.08415, section 2.
pub fn bias_gelu(input: Tensor<2>, bias: Tensor<1>) -> Result<Tensor<2>, KernelError> {
    let check = Check("bias_gelu");
    check.float("the input", input.dtype(), &input.device())?;
    check.shape("the bias", &bias.dims(), &input.dims()[1..])?;
    check.same_type("the bias", bias.dtype(), input.dtype())?;
    let (x, b) = (inner(&input), inner(&bias));
    let output = apply(&Forward, (x.clone(), b.clone()));
    let (x, destination) = (keep(x), VectorDestination::of([Some(&bias)]));
    Ok(record((input, bias), output, move |gradient, _| {
        let x = x.get();
        let Some(destination) = destination else {
            let (input, bias) = apply(&Backward, (x, b, gradient));
            return (Some(input), Some(bias));
        };
        let nothing = destination.nothing(&gradient);
        let input =
            destination.add(|VectorSums { sums, places }| apply(&BackwardInto { places }, (x, b, gradient, sums)));
        (Some(input), Some(nothing))
    }))
}

/// Input and bias to `gelu(input + bias)`.
#[derive(Clone, Copy, Debug)]
struct Forward;

impl Operation for Forward {
    type Inputs = (Tensor<2>, Tensor<1>);
    type Outputs = Tensor<2>;

    const NAME: &'static str = "bias_gelu";

    fn outputs(&self, (input, _): (Spec, Spec)) -> Spec {
        input
    }

    fn part_rule(&self, _inputs: (Spec, Spec)) -> Option<PartRule> {
        Names::of::<Self>(("rc", "c"), "rc").rule()
    }

    fn reference(&self, (input, bias): Self::Inputs) -> Tensor<2> {
        reference::forward(input, bias)
    }

    fn flex(&self, (input, bias): (FlexTensor, FlexTensor)) -> FlexTensor {
        flex::forward(input, bias)
    }

    #[cfg(feature = "cubecl")]
    fn cube(&self, (input, bias): (CubeTensor, CubeTensor)) -> CubeTensor {
        launch::forward(input, bias)
    }
}

/// Input, bias and the output's gradient to those of input and bias.
#[derive(Clone, Copy, Debug)]
struct Backward;

impl Operation for Backward {
    type Inputs = (Tensor<2>, Tensor<1>, Tensor<2>);
    type Outputs = (Tensor<2>, Tensor<1>);

    const NAME: &'static str = "bias_gelu_backward";

    fn outputs(&self, (input, bias, _): Of<Self::Inputs, Spec>) -> (Spec, Spec) {
        (input, bias)
    }

    fn part_rule(&self, _inputs: Of<Self::Inputs, Spec>) -> Option<PartRule> {
        Names::of::<Self>(("rc", "c", "rc"), ("rc", "c"))
            .linear_in_last()
            .rule()
    }

    fn reference(&self, (input, bias, gradient): Self::Inputs) -> Self::Outputs {
        reference::backward(input, bias, gradient)
    }

    fn flex(&self, (input, bias, gradient): Of<Self::Inputs, FlexTensor>) -> (FlexTensor, FlexTensor) {
        flex::backward(input, bias, gradient)
    }

    #[cfg(feature = "cubecl")]
    fn cube(&self, (input, bias, gradient): Of<Self::Inputs, CubeTensor>) -> (CubeTensor, CubeTensor) {
        let dtype = input.dtype;
        let (input, partials) = launch::backward(input, bias, gradient);
        (input, partials.sum(dtype).remove(0))
    }
}

/// [`Backward`] with the bias' gradient added to sums.
#[derive(Clone, Debug)]
struct BackwardInto {
    /// The bias' place.
    places: Vec<GradientPlace>,
}

impl Operation for BackwardInto {
    type Inputs = (Tensor<2>, Tensor<1>, Tensor<2>, GradientSums);
    type Outputs = (Tensor<2>, GradientSums);

    const NAME: &'static str = "bias_gelu_backward_into";

    fn outputs(&self, (input, _, _, sums): Of<Self::Inputs, Spec>) -> (Spec, [Spec; 2]) {
        (input, sums)
    }

    fn reference(&self, (input, bias, gradient, sums): Self::Inputs) -> Self::Outputs {
        let (input, bias) = apply(&Backward, (input, bias, gradient));
        (input, add_each(sums, &self.places, [bias]))
    }

    #[cfg(feature = "cubecl")]
    fn is_taken(&self, _client: &Client, (.., sums): Of<Self::Inputs, Spec>) -> bool {
        are_written(&sums)
    }

    #[cfg(feature = "cubecl")]
    fn cube(&self, (input, bias, gradient, sums): Of<Self::Inputs, CubeTensor>) -> (CubeTensor, [CubeTensor; 2]) {
        let (input, partials) = launch::backward(input, bias, gradient);
        (input, partials.add_to(sums, &self.places))
    }
}
