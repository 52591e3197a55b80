//! GELU in its tanh form of `input + bias`, in one pass; the backward pass computes the sum again instead of keeping it.

pub(crate) mod autodiff;
pub mod host;
pub mod reference;

use burn::tensor::{Tensor, backend::Backend};

use crate::KernelBackend;
use crate::error::{Check, KernelError};

/// Gradients of [`bias_gelu`].
#[derive(Clone, Debug)]
pub struct BiasGeluGradients<B: Backend> {
    /// `[rows, columns]`
    pub input: Tensor<B, 2>,
    /// `[columns]`
    pub bias: Tensor<B, 1>,
}

/// Applies `gelu(input + bias)` with `gelu(x) = x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))`.
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
    check.float("the input", input.dtype())?;
    check.shape("the bias", &bias.dims(), &input.dims()[1..])?;
    check.same_type("the bias", bias.dtype(), input.dtype())?;
    Ok(B::bias_gelu(input, bias))
}
