//! `residual + dropout(input + bias)`: the end of a transformer's sublayer, in one pass.

pub(crate) mod autodiff;
pub(crate) mod flex;
pub mod host;
#[cfg(feature = "cubecl")]
mod kernel;
#[cfg(feature = "cubecl")]
pub(crate) mod launch;
pub mod reference;

use burn::tensor::Tensor;

use crate::KernelBackend;
use crate::accumulate::{GradientSums, VectorSums};
use crate::error::KernelError;
use crate::norm::{AddRule, Addends};

/// Computes [`KernelBackend::bias_dropout_add_backward_into`] by the operation that returns all gradients.
pub(crate) fn backward_into<B: KernelBackend>(
    gradient: Tensor<B, 2>,
    addends: &AddRule,
    to: VectorSums<B>,
) -> (Tensor<B, 2>, GradientSums<B>) {
    let gradients = B::bias_dropout_add_backward(gradient, addends);
    (gradients.input, to.add(gradients.bias))
}

/// Adds to a residual stream.
///
/// # Shapes
/// - addends: see [`Addends`]
/// - output: `[rows, d_model]`
///
/// # Errors
/// When shapes or types do not fit each other, or the dropout has other rows than the input.
pub fn bias_dropout_add<B: KernelBackend>(addends: Addends<B>) -> Result<Tensor<B, 2>, KernelError> {
    addends.check("bias_dropout_add", addends.input.dims(), addends.input.dtype())?;
    Ok(B::bias_dropout_add(addends))
}
