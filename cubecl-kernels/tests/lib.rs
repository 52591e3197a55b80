//! What the test binaries `operations` and `cuda_compile` and the bench `bench_kernels` share: whether there is a CUDA
//! device, and whether all is to be tried.

/// Whether to try what takes minutes, and differs little from what is tried anyway: `KERNEL_TESTS_ALL=1`.
pub fn takes_all() -> bool {
    std::env::var_os("KERNEL_TESTS_ALL").is_some()
}

#[cfg(feature = "cuda")]
pub mod cuda;
