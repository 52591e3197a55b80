//! `residual + dropout(input + bias)`: the end of a transformer's sublayer, in one pass.

pub(crate) mod autodiff;
pub(crate) mod flex;
pub mod host;
#[cfg(feature = "cubecl")]
mod kernel;
#[cfg(feature = "cubecl")]
pub(crate) mod launch;
pub mod reference;

use burn::tensor::{DType, Tensor, backend::Backend};

use crate::KernelBackend;
use crate::accumulate::{GradientSums, VectorSums};
use crate::error::{Check, KernelError};
use crate::random::RowDropout;

/// What is added up: `residual + dropout(input + bias)`.
#[derive(Clone, Debug)]
pub struct Addends<B: Backend> {
    /// `[rows, d_model]`
    pub input: Tensor<B, 2>,
    /// `[d_model]`
    pub bias: Option<Tensor<B, 1>>,
    /// `[rows, d_model]`
    pub residual: Tensor<B, 2>,
    /// None outside training.
    pub dropout: Option<RowDropout>,
}

/// What the backward pass of [`Addends`] needs to know of them.
#[derive(Clone, Debug)]
pub struct AddRule {
    /// Whether there is a bias.
    pub has_bias: bool,
    /// As in the forward pass.
    pub dropout: Option<RowDropout>,
}

/// Gradients of [`Addends`].
#[derive(Clone, Debug)]
pub struct AddendGradients<B: Backend> {
    /// `[rows, d_model]`
    pub input: Tensor<B, 2>,
    /// `[d_model]`, where there is a bias.
    pub bias: Option<Tensor<B, 1>>,
    /// `[rows, d_model]`
    pub residual: Tensor<B, 2>,
}

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

impl<B: Backend> Addends<B> {
    /// What the backward pass needs to know.
    pub fn rule(&self) -> AddRule {
        AddRule {
            has_bias: self.bias.is_some(),
            dropout: self.dropout.clone(),
        }
    }

    /// Checks the addends against the input's shape and type.
    pub(crate) fn check(
        &self,
        operation: &'static str,
        [rows, columns]: [usize; 2],
        dtype: DType,
    ) -> Result<(), KernelError> {
        let check = Check(operation);
        check.float::<B>("the input", dtype, &self.input.device())?;
        check.shape("the residual", &self.residual.dims(), &[rows, columns])?;
        check.same_type("the residual", self.residual.dtype(), dtype)?;
        if let Some(bias) = &self.bias {
            check.shape("the bias", &bias.dims(), &[columns])?;
            check.same_type("the bias", bias.dtype(), dtype)?;
        }
        match &self.dropout {
            Some(dropout) => dropout.check(operation, rows, 1, columns),
            None => Ok(()),
        }
    }
}
