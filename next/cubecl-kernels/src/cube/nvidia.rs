//! Instructions of NVIDIA's GPUs that CubeCL has no operation for, for kernels that run on CUDA alone.
//!
//! # Reference
//! PTX ISA, `ex2`.

use cubecl::prelude::*;

/// `2^x` in one instruction: results below the normal numbers are 0.
///
/// `__powf` and `__expf` keep these results, for which each of them takes three instructions more.
#[cube]
pub fn exp2_approximate(exponent: f32) -> f32 {
    let power: f32;
    gpu_asm!("ex2.approx.ftz.f32 {}, {};", out(_) power, in(_) exponent, options(pure, nomem));
    power
}
