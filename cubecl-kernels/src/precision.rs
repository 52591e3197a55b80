//! Which type the operations compute in: f32 for numbers of 16 bits, else their own.

use burn::tensor::{DType, Device, FloatDType, Tensor, TensorData};

/// Whether numbers of this type are too short to add many of them up: f16 and bf16.
pub fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// Returns the type in which numbers of this type are computed with, and in which statistics of them are kept.
pub fn compute_type(dtype: DType) -> DType {
    if is_half(dtype) { DType::F32 } else { dtype }
}

/// Returns the tensor in f32 if it has 16 bits, and as it is otherwise. Its gradient comes back in its own type.
pub fn widen<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    if is_half(tensor.dtype()) {
        tensor.cast(FloatDType::F32)
    } else {
        tensor
    }
}

/// Returns the tensor in `dtype`, to which [`widen`]ed numbers go back.
pub fn narrow<const D: usize>(tensor: Tensor<D>, dtype: DType) -> Tensor<D> {
    if tensor.dtype() == dtype {
        tensor
    } else {
        tensor.cast(FloatDType::from(dtype))
    }
}

/// `1 / (1 + exp(−x))` in the tensor's type: that of some backends computes numbers of f64 in f32.
pub(crate) fn sigmoid<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    tensor.neg().exp().add_scalar(1.0).recip()
}

/// The numbers, those below the bound replaced by it; NaN stays NaN, which it does not through every backend's clamp.
pub(crate) fn at_least<const D: usize>(x: Tensor<D>, bound: f64) -> Tensor<D> {
    x.clone().mask_fill(x.lower_elem(bound), bound)
}

/// The numbers, those above the bound replaced by it; NaN stays NaN.
pub(crate) fn at_most<const D: usize>(x: Tensor<D>, bound: f64) -> Tensor<D> {
    x.clone().mask_fill(x.greater_elem(bound), bound)
}

/// Returns zeros, also where there are none: burn's own cannot be launched on CubeCL for tensors of no elements.
pub(crate) fn zeros<const D: usize>(shape: [usize; D], device: &Device, dtype: DType) -> Tensor<D> {
    if shape.contains(&0) {
        Tensor::from_data(TensorData::zeros::<f32, _>(shape), (device, dtype))
    } else {
        // Filled by a kernel: a copy from the host's memory may wait for all that is queued.
        Tensor::zeros(shape, (device, dtype))
    }
}

/// Returns zeros of a tensor's shape and type.
pub(crate) fn zeros_like<const D: usize>(tensor: &Tensor<D>) -> Tensor<D> {
    zeros(tensor.dims(), &tensor.device(), tensor.dtype())
}
