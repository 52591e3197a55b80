//! What the test binaries `operations` and `cuda_compile` and the bench `bench_kernels` share: whether there is a CUDA
//! device.

#[cfg(feature = "cuda")]
pub mod cuda;
