//! Instructions of NVIDIA's GPUs that CubeCL has no operation for, for kernels that run on CUDA alone.
//!
//! # Reference
//! PTX ISA, `cp.async.commit_group`, `cp.async.wait_group`, `ex2`, `mov`.

use cubecl::prelude::*;

/// Makes a group of this unit's asynchronous copies that are in no group yet.
#[cube]
pub fn commit_copies() {
    gpu_asm!("cp.async.commit_group;");
}

/// Waits until no more than `pending` of this unit's last groups of copies are not done.
#[cube]
pub fn wait_for_copies(#[comptime] pending: u32) {
    gpu_asm!("cp.async.wait_group {};", const pending);
}

/// `2^x` in one instruction: results below the normal numbers are 0.
///
/// `__powf` and `__expf` keep these results, for which each of them takes three instructions more.
#[cube]
pub fn exp2_approximate(exponent: f32) -> f32 {
    let power: f32;
    gpu_asm!("ex2.approx.ftz.f32 {}, {};", out(_) power, in(_) exponent, options(pure, nomem));
    power
}

/// The same number, of which the compiler does not know that it is: places that depend on it are computed where they
/// are needed, and hold no registers from an earlier place on.
#[cube]
pub fn opaque(number: u32) -> u32 {
    let same: u32;
    gpu_asm!("mov.u32 {}, {};", out(_) same, in(_) number, options(nomem));
    same
}
