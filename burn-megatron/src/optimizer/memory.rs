//! How much memory parameters, gradients and Adam's state take.

use burn::tensor::DType;

/// Returns the bytes that a parameter of this type costs a rank: itself, its main gradient, its main value where it has
/// 16 bits, and two moments, the last three shared out over `num_shards` data-parallel ranks.
///
/// 16 in f32, and 8 + 8/d sharded over d ranks; 18 in 16 bits, and 6 + 12/d; twice that of f32 in f64.
///
/// # Reference
/// Rajbhandari et al. 2020, arXiv:1910.02054, section 3.1; main gradients are in f32, as Megatron-LM's.
pub fn bytes_per_parameter(dtype: DType, num_shards: usize) -> f64 {
    let main = if dtype == DType::F64 { 8.0 } else { 4.0 };
    let here = dtype.size() as f64 + main;
    let has_main_values = dtype.size() < 4;
    let shared = 2.0 * main + if has_main_values { main } else { 0.0 };
    here + shared / num_shards as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_formulas() {
        for (dtype, shards, bytes) in [
            (DType::F32, 1, 16.0),
            (DType::F32, 4, 10.0),
            (DType::BF16, 1, 18.0),
            (DType::F16, 4, 9.0),
            (DType::F64, 1, 32.0),
            (DType::F64, 2, 24.0),
        ] {
            assert_eq!(bytes_per_parameter(dtype, shards), bytes, "{dtype:?} on {shards}");
        }
    }
}
