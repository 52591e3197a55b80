//! burn's backend of `ndarray`: everything runs the references, in f32 or f64.

use burn_ndarray::NdArray;

use super::KernelBackend;

impl KernelBackend for NdArray<f32> {}
impl KernelBackend for NdArray<f64> {}
