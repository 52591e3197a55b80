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
pub fn swiglu<B: KernelBackend>(input: Tensor<B, 2>) -> Result<Tensor<B, 2>, KernelError> {
    let check = Check("swiglu");
    check.float::<B>("the input", input.dtype(), &input.device())?;
    let columns = input.dims()[1];
    check.value("the input's columns", columns as f64, columns.is_multiple_of(2), || {
        "even".to_owned()
    })?;
    Ok(B::swiglu(input))
}
