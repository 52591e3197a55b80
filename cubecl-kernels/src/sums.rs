//! Sums of gradients over micro-batches, in a flat buffer.

use burn::backend::DispatchTensor;
#[cfg(feature = "cubecl")]
use burn::tensor::DType;
use burn::tensor::Tensor;

pub use crate::gradient_place::GradientPlace;
#[cfg(feature = "cubecl")]
use crate::operation::Spec;
use crate::operation::Tensors;

/// Gradients of many parameters, added up over micro-batches. Given up by the caller, so that they can be written in
/// place.
#[derive(Clone, Debug)]
pub struct GradientSums {
    /// The sums, `[elements]`: f32, or f64.
    pub sums: Tensor<1>,
    /// For each parameter 0, or 1 once a gradient of it was not finite, `[parameters]`, in the sums' type.
    pub non_finite: Tensor<1>,
}

impl Tensors for GradientSums {
    type Of<T: Send + Sync> = [T; 2];

    fn into_dispatch(self) -> [DispatchTensor; 2] {
        [self.sums, self.non_finite].map(Tensor::into_dispatch)
    }

    fn from_dispatch(tensors: [DispatchTensor; 2]) -> Self {
        let [sums, non_finite] = tensors.map(Tensor::from_dispatch);
        Self { sums, non_finite }
    }

    fn map<T: Send + Sync, U: Send + Sync>(of: [T; 2], each: &mut impl FnMut(T) -> U) -> [U; 2] {
        of.map(each)
    }

    fn by_ref<T: Send + Sync>(of: &[T; 2]) -> [&T; 2] {
        of.each_ref()
    }
}

/// Returns whether kernels add to such sums.
#[cfg(feature = "cubecl")]
pub fn are_written(sums: &[Spec; 2]) -> bool {
    sums.iter().all(|(_, dtype)| *dtype == DType::F32)
}
