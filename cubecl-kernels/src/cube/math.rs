//! Functions of numbers in kernels: exponentials, quotients and bounds.
//!
//! NVIDIA's GPUs have instructions for powers of two and for reciprocals, exact to about two roundings. The code that
//! CUDA makes of a plain exponential or quotient is two to three times longer, and element-wise kernels then cannot
//! reach the memory's bandwidth. Other runtimes compile the plain forms: there, what comes of infinite
//! numbers in the short ones is not defined.

use cubecl::client::Client;
use cubecl::prelude::*;

use super::nvidia::exp2_approximate;

/// The least `−t` of [`over_one_plus_exp()`]'s plain form whose exponential is finite, and whose result is a normal
/// number.
pub const LOWEST: f32 = -87.0;

/// Returns whether kernels take the short forms on a device.
pub fn is_fast(client: &Client) -> bool {
    client.name() == "cuda"
}

/// Factor of the argument of [`exp_scaled()`], folded into one that is there anyway.
pub const fn exponent_scale(is_fast: bool) -> f32 {
    if is_fast { std::f32::consts::LOG2_E } else { 1.0 }
}

/// `exp(x)`
#[cube]
pub fn exp<N: Size>(x: Vector<f32, N>, #[comptime] is_fast: bool) -> Vector<f32, N> {
    if comptime!(is_fast) {
        exp2::<N>(x * Vector::new(f32::new(comptime!(exponent_scale(true)))))
    } else {
        Vector::exp(x)
    }
}

/// `exp(x)` of `x` times [`exponent_scale`].
#[cube]
pub fn exp_scaled<N: Size>(scaled: Vector<f32, N>, #[comptime] is_fast: bool) -> Vector<f32, N> {
    if comptime!(is_fast) {
        exp2::<N>(scaled)
    } else {
        Vector::exp(scaled)
    }
}

/// As [`exp_scaled()`], in one instruction where the short form is taken. 0 of −∞ on every device, and where the short
/// form is taken also of results below the normal numbers.
#[cube]
pub fn exp_or_zero<N: Size>(scaled: Vector<f32, N>, #[comptime] is_fast: bool) -> Vector<f32, N> {
    if comptime!(is_fast) {
        let mut powers = Vector::<f32, N>::empty();
        #[unroll]
        for lane in 0..N::value() {
            powers.insert(lane, exp2_approximate(scaled.extract(lane)));
        }
        powers
    } else {
        Vector::exp(scaled)
    }
}

/// `numerator / (1 + exp(t))` of `t` times [`exponent_scale`]: 0 of a finite numerator where the exponential is
/// infinite. NaN of NaN.
#[cube]
pub fn over_one_plus_exp<N: Size>(
    numerator: Vector<f32, N>,
    scaled: Vector<f32, N>,
    #[comptime] is_fast: bool,
) -> Vector<f32, N> {
    let one = Vector::<f32, N>::new(f32::new(1.0));
    if comptime!(is_fast) {
        quotient::<N>(numerator, one + exp2::<N>(scaled))
    } else {
        let highest = f32::new(comptime!(-LOWEST));
        let mut result = numerator / (one + Vector::exp(at_most::<N>(scaled, highest)));
        #[unroll]
        for lane in 0..N::value() {
            result.insert(
                lane,
                select(scaled.extract(lane) > highest, f32::new(0.0), result.extract(lane)),
            );
        }
        result
    }
}

/// `2^x`: the GPU's own instruction, where a constant to a power is rewritten to it.
#[cube(fast_math = FastMath::ReducedPrecision | FastMath::NotNaN | FastMath::NotInf)]
fn exp2<N: Size>(exponents: Vector<f32, N>) -> Vector<f32, N> {
    Vector::powf(Vector::<f32, N>::new(f32::new(2.0)), exponents)
}

/// `a / b`, by the GPU's own reciprocal; 0 where `b` is infinite.
#[cube(fast_math = FastMath::AllowReciprocal | FastMath::ReducedPrecision | FastMath::UnsignedZero | FastMath::NotInf)]
fn quotient<N: Size>(a: Vector<f32, N>, b: Vector<f32, N>) -> Vector<f32, N> {
    a / b
}

/// `a (1 − b)`, rounded once.
#[cube]
pub fn times_rest<N: Size>(a: Vector<f32, N>, b: Vector<f32, N>) -> Vector<f32, N> {
    let mut result = a;
    #[unroll]
    for lane in 0..N::value() {
        result.insert(lane, fma(-a.extract(lane), b.extract(lane), a.extract(lane)));
    }
    result
}

/// The numbers, those below the bound replaced by it. NaN stays NaN, which it does not through every device's maximum.
#[cube]
pub fn at_least<N: Size>(x: Vector<f32, N>, bound: f32) -> Vector<f32, N> {
    let mut result = x;
    #[unroll]
    for lane in 0..N::value() {
        result.insert(lane, select(x.extract(lane) < bound, bound, x.extract(lane)));
    }
    result
}

/// The numbers, those above the bound replaced by it. NaN stays NaN.
#[cube]
pub fn at_most<N: Size>(x: Vector<f32, N>, bound: f32) -> Vector<f32, N> {
    let mut result = x;
    #[unroll]
    for lane in 0..N::value() {
        result.insert(lane, select(x.extract(lane) > bound, bound, x.extract(lane)));
    }
    result
}
