//! What the test binaries `operations` and `cuda_compile` and the bench `bench_kernels` share: whether there is a CUDA
//! device, and whether all is to be tried.

/// Returns whether to try what takes minutes and differs little from what is tried anyway: `BURN_MEGATRON_ALL_TESTS=1`.
pub fn takes_all() -> bool {
    std::env::var_os("BURN_MEGATRON_ALL_TESTS").is_some()
}

#[cfg(feature = "cuda")]
pub mod cuda;
