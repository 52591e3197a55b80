//! Which type the operations compute in: f32 for numbers of 16 bits, else their own.

use burn::tensor::{DType, FloatDType, Tensor, TensorData, backend::Backend};

/// Whether numbers of this type are too short to add many of them up: f16 and bf16.
pub fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// The type in which numbers of this type are computed with, and in which statistics of them are kept.
pub fn compute_type(dtype: DType) -> DType {
    if is_half(dtype) { DType::F32 } else { dtype }
}

/// Returns the tensor in f32 if it has 16 bits, and as it is otherwise. Its gradient comes back in its own type.
pub fn widen<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Tensor<B, D> {
    if is_half(tensor.dtype()) {
        tensor.cast(FloatDType::F32)
    } else {
        tensor
    }
}

/// Returns the tensor in `dtype`, to which [`widen`]ed numbers go back.
pub fn narrow<B: Backend, const D: usize>(tensor: Tensor<B, D>, dtype: DType) -> Tensor<B, D> {
    if tensor.dtype() == dtype {
        tensor
    } else {
        tensor.cast(FloatDType::from(dtype))
    }
}

/// `1 / (1 + exp(−x))` in the tensor's type: that of some backends computes numbers of f64 in f32.
pub(crate) fn sigmoid<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Tensor<B, D> {
    tensor.neg().exp().add_scalar(1.0).recip()
}

/// The numbers, those below the bound replaced by it; NaN stays NaN, which it does not through every backend's clamp.
pub(crate) fn at_least<B: Backend, const D: usize>(x: Tensor<B, D>, bound: f64) -> Tensor<B, D> {
    x.clone().mask_fill(x.lower_elem(bound), bound)
}

/// The numbers, those above the bound replaced by it; NaN stays NaN.
pub(crate) fn at_most<B: Backend, const D: usize>(x: Tensor<B, D>, bound: f64) -> Tensor<B, D> {
    x.clone().mask_fill(x.greater_elem(bound), bound)
}

/// Returns zeros, also where there are none: burn's own cannot be launched on CubeCL for tensors of no elements.
pub(crate) fn zeros<B: Backend, const D: usize>(shape: [usize; D], device: &B::Device, dtype: DType) -> Tensor<B, D> {
    if shape.contains(&0) {
        Tensor::from_data(TensorData::zeros::<f32, _>(shape), (device, dtype))
    } else {
        // Filled by a kernel: a copy from the host's memory may wait for all that is queued.
        Tensor::zeros(shape, (device, dtype))
    }
}

/// Returns zeros of a tensor's shape and type.
pub(crate) fn zeros_like<B: Backend, const D: usize>(tensor: &Tensor<B, D>) -> Tensor<B, D> {
    zeros(tensor.dims(), &tensor.device(), tensor.dtype())
}
