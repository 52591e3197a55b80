use cubecl::prelude::*;
#[cube]
pub fn exp2_approximate(exponent: f32) -> f32 {
    let power: f32;
    gpu_asm!("ex2.approx.ftz.f32 {}, {};", out(_) power, in(_) exponent, options(pure, nomem));
    power
}
