//! GELU in its tanh form of `input + bias`, in one pass; the backward pass computes the sum again instead of keeping
//! it.

pub(crate) mod autodiff;
pub(crate) mod flex;
pub mod host;
#[cfg(feature = "cubecl")]
mod kernel;
#[cfg(feature = "cubecl")]
pub(crate) mod launch;
pub mod reference;

use burn::tensor::{Tensor, backend::Backend};

use crate::KernelBackend;
use crate::accumulate::{GradientSums, VectorSums};
use crate::error::{Check, KernelError};

/// `2 √(2/π)`
const SLOPE: f64 = 2.0 * std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2;
/// The polynomial's coefficient.
const CUBE: f64 = 0.044715;
/// Beyond ± this, the function is `x` or 0 to the last digit of f64, and its derivative 1 or 0.
const FAR: f64 = 64.0;

/// Gradients of [`bias_gelu`].
#[derive(Clone, Debug)]
pub struct BiasGeluGradients<B: Backend> {
    /// `[rows, columns]`
    pub input: Tensor<B, 2>,
    /// `[columns]`
    pub bias: Tensor<B, 1>,
}

/// Computes [`KernelBackend::bias_gelu_backward_into`] by the operation that returns both gradients.
pub(crate) fn backward_into<B: KernelBackend>(
    input: Tensor<B, 2>,
    bias: Tensor<B, 1>,
    gradient: Tensor<B, 2>,
    to: VectorSums<B>,
) -> (Tensor<B, 2>, GradientSums<B>) {
    let gradients = B::bias_gelu_backward(input, bias, gradient);
    (gradients.input, to.add([gradients.bias]))
}

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
pub fn bias_gelu<B: KernelBackend>(input: Tensor<B, 2>, bias: Tensor<B, 1>) -> Result<Tensor<B, 2>, KernelError> {
    let check = Check("bias_gelu");
    check.float::<B>("the input", input.dtype(), &input.device())?;
    check.shape("the bias", &bias.dims(), &input.dims()[1..])?;
    check.same_type("the bias", bias.dtype(), input.dtype())?;
    Ok(B::bias_gelu(input, bias))
}
