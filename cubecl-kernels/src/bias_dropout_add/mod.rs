//! `residual + dropout(input + bias)`: the end of a transformer's sublayer, in one pass.

pub(crate) mod autodiff;
pub mod host;
pub mod reference;

use burn::tensor::Tensor;

use crate::KernelBackend;
use crate::error::KernelError;
use crate::norm::Addends;

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
