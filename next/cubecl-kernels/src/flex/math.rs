//! `Real`: the mathematics of f32 and f64, without branches, so that loops over it become vector instructions.
//!
//! The crate is compiled for a processor without AVX; [`vectorised`] compiles what it runs for AVX2 too, with the
//! feature `x86-v4` for AVX-512 and chooses among them when called. What it runs must be marked `#[inline(always)]`,
//! down to the loops.

use std::ops::{Add, Div, Mul, Neg, Sub};

/// Runs a closure, itself `#[inline(always)]`, with the best vector instructions of this processor.
///
/// Sums and products round as they are written, whatever the instructions: all processors give the same numbers.
#[inline(always)]
pub(crate) fn vectorised<T>(run: impl FnOnce() -> T) -> T {
    #[cfg(target_arch = "x86_64")]
    {
        use pulp::Simd;

        #[cfg(feature = "x86-v4")]
        if let Some(avx512) = pulp::x86::V4::try_new() {
            return Simd::vectorize(avx512, run);
        }
        if let Some(avx2) = pulp::x86::V3::try_new() {
            return Simd::vectorize(avx2, run);
        }
    }
    run()
}

/// A type that is computed in.
pub(crate) trait Real:
    Copy
    + PartialOrd
    + Send
    + Sync
    + 'static
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    const ZERO: Self;
    const ONE: Self;

    /// Rounds to the type.
    fn of(value: f64) -> Self;

    fn sqrt(self) -> Self;

    /// Returns `self * factor + addend`, rounded once.
    fn mul_add(self, factor: Self, addend: Self) -> Self;

    /// Returns `e^self`, within two units in the last place; 0 and ∞ where that is what it rounds to.
    fn exp(self) -> Self;

    /// Returns `1 / (1 + e^-self)`.
    #[inline(always)]
    fn sigmoid(self) -> Self {
        Self::ONE / (Self::ONE + (-self).exp())
    }
}

macro_rules! real {
    (
        $float:ident, $bits:ident, degree: $degree:literal, ln_2: $high:literal + $low:literal,
        within: $lowest:literal .. $highest:literal
    ) => {
        impl Real for $float {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;

            #[inline(always)]
            fn of(value: f64) -> Self {
                value as $float
            }

            #[inline(always)]
            fn sqrt(self) -> Self {
                self.sqrt()
            }

            #[inline(always)]
            fn mul_add(self, factor: Self, addend: Self) -> Self {
                self.mul_add(factor, addend)
            }

            /// `e^x = 2^n e^r` with `n` the integer nearest to `x / ln 2`, and `r = x − n ln 2` taken in two steps, the
            /// first of them exact; `e^r` by its series.
            // The first constant of f32 is exact, in more digits than clippy would write.
            #[allow(clippy::excessive_precision)]
            #[inline(always)]
            fn exp(self) -> Self {
                const FRACTION_BITS: u32 = $float::MANTISSA_DIGITS - 1;
                const BIAS: $bits = $float::MAX_EXP as $bits - 1;
                // Added to a number, leaves the nearest integer in the low bits.
                const ROUNDER: $float = 3.0 * (1u64 << (FRACTION_BITS - 1)) as $float;
                const COEFFICIENTS: [$float; $degree + 1] = {
                    let mut coefficients = [1.0; $degree + 1];
                    let (mut factorial, mut power) = (1.0f64, 1);
                    while power <= $degree {
                        factorial *= power as f64;
                        coefficients[power] = (1.0 / factorial) as $float;
                        power += 1;
                    }
                    coefficients
                };
                // Beyond these the result rounds to 0 and ∞ all the same. NaN passes both comparisons.
                let x = if self < $lowest { $lowest } else { self };
                let x = if x > $highest { $highest } else { x };
                let rounded = x.mul_add(std::$float::consts::LOG2_E, ROUNDER);
                let n = rounded - ROUNDER;
                let r = n.mul_add(-$low, n.mul_add(-$high, x));
                let mut series = COEFFICIENTS[$degree];
                let mut power = $degree;
                while power > 0 {
                    power -= 1;
                    series = series.mul_add(r, COEFFICIENTS[power]);
                }
                // In two factors, because 2^n alone may be too large or too small for the type.
                let exponents = rounded
                    .to_bits()
                    .wrapping_sub(ROUNDER.to_bits())
                    .wrapping_add(2 * BIAS);
                let first = exponents >> 1;
                let second = exponents.wrapping_sub(first);
                let [first, second] = [first, second].map(|exponent| $float::from_bits(exponent << FRACTION_BITS));
                series * first * second
            }
        }
    };
}

real!(f32, u32, degree: 7, ln_2: 0.693_359_375 + -2.121_944_400_546_905_8e-4, within: -104.0..89.0);
real!(f64, u64, degree: 13, ln_2: 0.693_145_751_953_125 + 1.428_606_820_309_417_2e-6, within: -746.0..710.0);

#[cfg(test)]
mod tests {
    use super::*;

    fn vector<R: Real>(values: &mut [R], function: impl Fn(R) -> R) {
        vectorised(
            #[inline(always)]
            || {
                for value in values.iter_mut() {
                    *value = function(*value);
                }
            },
        );
    }

    /// Units in the last place between two numbers of one sign.
    fn units(a: f64, b: f64) -> u64 {
        (a.to_bits() as i64).abs_diff(b.to_bits() as i64)
    }

    fn units_f32(a: f32, b: f32) -> u32 {
        (a.to_bits() as i32).abs_diff(b.to_bits() as i32)
    }

    #[test]
    fn exponentials_of_f32_are_within_a_unit_of_the_exact_ones() {
        // Every 997th number of the type, all of the exponents and both signs among them.
        let inputs: Vec<f32> = (0..=u32::MAX).step_by(997).map(f32::from_bits).collect();
        let mut outputs = inputs.clone();
        vector(
            &mut outputs,
            #[inline(always)]
            |x| x.exp(),
        );
        for (x, y) in inputs.into_iter().zip(outputs) {
            let exact = f64::from(x).exp() as f32;
            let is_same = (y.is_nan() && x.is_nan()) || units_f32(y, exact) <= 1;
            assert!(is_same, "exp({x:e}) is {y:e}, expected {exact:e}");
        }
    }

    #[test]
    fn exponentials_of_f64_are_within_two_units_of_the_standard_librarys() {
        let inputs: Vec<f64> = (0..2_000_000).map(|i| -760.0 + f64::from(i) * 7.45e-4).collect();
        let mut outputs = inputs.clone();
        vector(
            &mut outputs,
            #[inline(always)]
            |x| x.exp(),
        );
        for (x, y) in inputs.into_iter().zip(outputs) {
            let expected = f64::exp(x);
            assert!(units(y, expected) <= 2, "exp({x:e}) is {y:e}, expected {expected:e}");
        }
    }

    #[test]
    fn exponentials_at_the_edges_are_those_of_the_standard_library() {
        fn check<R: Real + Into<f64>>() {
            for x in [
                0.0,
                -0.0,
                f64::INFINITY,
                f64::NEG_INFINITY,
                1e30,
                -1e30,
                1e-30,
                800.0,
                -800.0,
            ] {
                let expected: f64 = R::of(x.exp()).into();
                assert_eq!(R::of(x).exp().into(), expected, "exp({x})");
            }
            assert!(R::of(f64::NAN).exp().into().is_nan());
        }
        check::<f32>();
        check::<f64>();
    }

    #[test]
    fn sigmoids_reach_both_ends() {
        assert_eq!(Real::sigmoid(f32::INFINITY), 1.0);
        assert_eq!(Real::sigmoid(f32::NEG_INFINITY), 0.0);
        assert_eq!(Real::sigmoid(0.0f64), 0.5);
        for x in (-4000..4000).map(|i| f64::from(i) * 0.01) {
            let expected = 1.0 / (1.0 + (-x).exp());
            assert!(
                (Real::sigmoid(x) - expected).abs() <= 4.0 * f64::EPSILON * expected,
                "sigmoid({x})"
            );
        }
    }
}
