//! `silu(gate) ∘ up`, the gated activation of Llama's MLP, in one pass.

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
use crate::error::{Check, KernelError};

/// Applies `silu(gate) ∘ up` to `[gate | up]`, with `silu(x) = x · sigmoid(x)`.
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
pub fn swiglu<B: KernelBackend>(input: Tensor<B, 2>) -> Result<Tensor<B, 2>, KernelError> {
    let check = Check("swiglu");
    check.float("the input", input.dtype())?;
    let columns = input.dims()[1];
    check.value("the input's columns", columns as f64, columns.is_multiple_of(2), || {
        "even".to_owned()
    })?;
    Ok(B::swiglu(input))
}
