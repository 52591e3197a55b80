//! Adds a gradient to its place in a flat buffer of sums, and notes whether it is finite, in one pass.

pub mod host;
#[cfg(feature = "cubecl")]
mod kernel;
#[cfg(feature = "cubecl")]
mod launch;
mod reference;
pub mod vectors;

use burn::tensor::{DType, Tensor};
#[cfg(feature = "cubecl")]
use burn_cubecl::tensor::CubeTensor;
#[cfg(feature = "cubecl")]
use cubecl::client::Client;

use crate::error::{Check, KernelError};
use crate::operation::{Operation, Spec, apply};
#[cfg(feature = "cubecl")]
use crate::sums::are_written;
pub use crate::sums::{GradientPlace, GradientSums};
pub use vectors::VectorSums;

/// Adds a gradient to the sums, and notes it if an element of it is infinite or not a number.
///
/// # Shapes
/// - `sums`: see [`GradientSums`]
/// - `gradient`: `[length]`, of any type
///
/// # Errors
/// When the gradient or its number is outside the sums, the sums have 16 bits, or the device does not support a type.
pub fn accumulate(sums: GradientSums, gradient: Tensor<1>, place: GradientPlace) -> Result<GradientSums, KernelError> {
    let check = Check("accumulate");
    let dtype = sums.sums.dtype();
    check.one_of("the sums", dtype, &[DType::F32, DType::F64])?;
    check.same_type("what is not finite", sums.non_finite.dtype(), dtype)?;
    let device = gradient.device();
    check.float("the gradient", gradient.dtype(), &device)?;
    check.float("the sums", dtype, &device)?;
    let ([elements], [length], [parameters]) = (sums.sums.dims(), gradient.dims(), sums.non_finite.dims());
    let fits = place.offset.checked_add(length).is_some_and(|end| end <= elements);
    check.value("the gradient's offset", place.offset as f64, fits, || {
        format!("such that its {length} elements end at {elements} at most")
    })?;
    let is_numbered = place.parameter < parameters;
    check.value("the parameter's number", place.parameter as f64, is_numbered, || {
        format!("less than {parameters}")
    })?;
    Ok(apply(&Accumulate(place), (sums, gradient)))
}

/// Sums and a gradient to the sums with the gradient at its place.
#[derive(Clone, Debug)]
pub(crate) struct Accumulate(pub GradientPlace);

impl Operation for Accumulate {
    type Inputs = (GradientSums, Tensor<1>);
    type Outputs = GradientSums;

    const NAME: &'static str = "accumulate";

    fn outputs(&self, (sums, _): ([Spec; 2], Spec)) -> [Spec; 2] {
        sums
    }

    fn reference(&self, (sums, gradient): Self::Inputs) -> GradientSums {
        reference::add(sums, gradient, self.0)
    }

    #[cfg(feature = "cubecl")]
    fn is_taken(&self, _client: &Client, (sums, _): ([Spec; 2], Spec)) -> bool {
        are_written(&sums)
    }

    #[cfg(feature = "cubecl")]
    fn cube(&self, (sums, gradient): ([CubeTensor; 2], CubeTensor)) -> [CubeTensor; 2] {
        launch::add(sums, gradient, self.0)
    }
}
