//! Adds a gradient to its place in a flat buffer of sums, and notes whether it is finite, in one pass.

pub mod host;
#[cfg(feature = "cubecl")]
mod kernel;
#[cfg(feature = "cubecl")]
pub(crate) mod launch;
pub mod reference;
pub mod vectors;

use burn::tensor::{DType, Tensor};

pub use vectors::VectorSums;

use crate::KernelBackend;
use crate::error::{Check, KernelError};
pub use crate::sums::{GradientPlace, GradientSums};

/// Adds a gradient to the sums, and notes it if an element of it is infinite or not a number.
///
/// # Shapes
/// - `sums`: see [`GradientSums`]
/// - `gradient`: `[length]`, of any type
///
/// # Errors
/// When the gradient or its number is outside the sums, the sums have 16 bits, or the device does not support a type.
pub fn accumulate<B: KernelBackend>(
    sums: GradientSums<B>,
    gradient: Tensor<B, 1>,
    place: GradientPlace,
) -> Result<GradientSums<B>, KernelError> {
    const SUMS: &[DType] = &[DType::F32, DType::F64];
    let check = Check("accumulate");
    let dtype = sums.sums.dtype();
    if !SUMS.contains(&dtype) {
        return Err(KernelError::Type {
            operation: "accumulate",
            what: "the sums".into(),
            actual: dtype,
            valid: SUMS,
        });
    }
    check.same_type("what is not finite", sums.non_finite.dtype(), dtype)?;
    let device = gradient.device();
    check.float::<B>("the gradient", gradient.dtype(), &device)?;
    check.float::<B>("the sums", dtype, &device)?;
    let ([elements], [length], [parameters]) = (sums.sums.dims(), gradient.dims(), sums.non_finite.dims());
    let fits = place.offset.checked_add(length).is_some_and(|end| end <= elements);
    check.value("the gradient's offset", place.offset as f64, fits, || {
        format!("such that its {length} elements end at {elements} at most")
    })?;
    let is_numbered = place.parameter < parameters;
    check.value("the parameter's number", place.parameter as f64, is_numbered, || {
        format!("less than {parameters}")
    })?;
    Ok(B::accumulate(sums, gradient, place))
}
