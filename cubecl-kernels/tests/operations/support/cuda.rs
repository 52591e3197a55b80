//! The trials of a claim on a real CUDA device, with burn's fusion before the kernels and without it.
//!
//! Made by [`backends`](crate::backends) with the feature `cuda`. Where there is no device, they count as ignored. With
//! `KERNEL_TESTS_CUBLASLT=1` linear layers multiply with cuBLASLt.

use std::sync::OnceLock;

use burn::tensor::DType;
use burn_cuda::{Cuda as FusedCuda, CudaDevice};
use burn_wgpu::CubeBackend;
use cubecl::cuda::CudaRuntime;
use cubecl_kernels::cublaslt;
use libtest_mimic::Trial;

use crate::support::backends::{Claim, trial, uses_cublaslt};

/// CubeCL's kernels as they are.
pub type Cuda = CubeBackend<CudaRuntime, f32, i32, u8>;

pub fn trials_of<C: Claim>() -> Vec<Trial> {
    let mut trials = Vec::new();
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        trials.push(trial::<C, Cuda>("cuda", dtype, CudaDevice::default));
        trials.push(trial::<C, FusedCuda>("cuda_fusion", dtype, CudaDevice::default));
    }
    let is_missing = !has_cuda();
    trials
        .into_iter()
        .map(|trial| trial.with_ignored_flag(is_missing))
        .collect()
}

/// Whether there is a CUDA device; says so once where there is none. To be asked before any other device is looked for:
/// cuBLASLt wants its say in how CubeCL begins.
pub fn has_cuda() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    let look = || {
        let found =
            kernel_tests::cuda::device().inspect_err(|missing| eprintln!("trials on CUDA are ignored: {missing}"));
        if found.is_ok() && uses_cublaslt() {
            cubecl_kernels::cuda::use_one_stream();
            let version = cublaslt::enable(&CudaDevice::default()).expect("it was asked for");
            eprintln!("linear layers multiply with cuBLASLt {version}");
        }
        found.is_ok()
    };
    *HAS.get_or_init(look)
}
