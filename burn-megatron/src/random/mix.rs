//! [`mix`]: a number whose every bit depends on every bit of another.

/// SplitMix64's finaliser (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators").
pub(crate) fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}
