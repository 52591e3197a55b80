//! How much memory parameters, gradients and the optimizer's state take.

use burn::tensor::DType;

/// Returns the bytes that a parameter of this type costs a rank: itself, its main gradient, its main value where it has
/// 16 bits, and the tensors of the optimizer's state, the last two shared out over `num_shards` data-parallel ranks.
///
/// With the two tensors of Adam 16 in f32, and 8 + 8/d sharded over d ranks; 18 in 16 bits, and 6 + 12/d; twice that of
/// f32 in f64. [`Sgd`](super::Sgd) has one such tensor, and none without momentum.
///
/// # Reference
/// Rajbhandari et al. 2020, arXiv:1910.02054, section 3.1; main gradients are in f32, as Megatron-LM's.
pub fn bytes_per_parameter(dtype: DType, num_state_tensors: usize, num_shards: usize) -> f64 {
    let main = if dtype == DType::F64 { 8.0 } else { 4.0 };
    let here = dtype.size() as f64 + main;
    let has_main_values = dtype.size() < 4;
    let shared = num_state_tensors as f64 * main + if has_main_values { main } else { 0.0 };
    here + shared / num_shards as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_formulas() {
        for (dtype, tensors, shards, bytes) in [
            (DType::F32, 2, 1, 16.0),
            (DType::F32, 2, 4, 10.0),
            (DType::BF16, 2, 1, 18.0),
            (DType::F16, 2, 4, 9.0),
            (DType::F64, 2, 1, 32.0),
            (DType::F64, 2, 2, 24.0),
            (DType::F32, 1, 1, 12.0),
            (DType::BF16, 0, 1, 10.0),
        ] {
            let got = bytes_per_parameter(dtype, tensors, shards);
            assert_eq!(got, bytes, "{dtype:?}, {tensors} tensors, on {shards}");
        }
    }
}
