//! The two forms of GELU.

use burn::tensor::{Tensor, activation::sigmoid};
use burn_megatron::precision::{narrow, widen};

/// Applies GELU in its tanh form, `x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))`, element by element.
///
/// Computed as `x · sigmoid(2u)` with `u` the argument of tanh: the same function in fewer passes, without a power.
///
/// Numbers of 16 bits are widened for it: in f16 the square of 256 is infinite already, and the gradient then no
/// number.
///
/// # Reference
/// Hendrycks and Gimpel 2016, arXiv:1606.08415, section 2.
pub fn gelu_tanh<const D: usize>(input: Tensor<D>) -> Tensor<D> {
    const TWICE_SQRT_2_OVER_PI: f64 = 2.0 * std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2;
    let dtype = input.dtype();
    let input = widen(input);
    let square = input.clone() * input.clone();
    let slope = square
        .mul_scalar(0.044715 * TWICE_SQRT_2_OVER_PI)
        .add_scalar(TWICE_SQRT_2_OVER_PI);
    narrow(sigmoid(slope * input.clone()) * input, dtype)
}

/// Applies GELU itself, `x/2 · (1 + erf(x / √2))`, element by element.
///
/// In burn's own operations on every device: no kernel of this project has the error function. Numbers of 16 bits are
/// widened for it.
///
/// # Reference
/// Hendrycks and Gimpel 2016, arXiv:1606.08415, section 2.
pub fn gelu_erf<const D: usize>(input: Tensor<D>) -> Tensor<D> {
    let dtype = input.dtype();
    let input = widen(input);
    let share = input.clone().mul_scalar(std::f64::consts::FRAC_1_SQRT_2).erf();
    narrow(share.add_scalar(1.0).mul_scalar(0.5) * input, dtype)
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device, TensorData};

    use super::*;

    #[test]
    fn gelu_of_sixteen_bits_is_the_rounded_gelu_of_f32() {
        expect_rounded(gelu_tanh);
        expect_rounded(gelu_erf);
    }

    fn expect_rounded(gelu: fn(Tensor<1>) -> Tensor<1>) {
        // Up to ±600, whose squares f16 cannot hold.
        let values: Vec<f64> = (-600..=600).map(|step| f64::from(step).powi(3) / 360_000.0).collect();
        for dtype in [DType::F16, DType::BF16] {
            let data = TensorData::from(&values[..]).convert_dtype(dtype);
            let run = |run_in| {
                let leaf = Tensor::<1>::from_data(data.clone(), (&Device::flex().autodiff(), run_in)).require_grad();
                let output = gelu(leaf.clone());
                let gradient = leaf.grad(&output.clone().sum().backward()).expect("tracked");
                [output.into_data(), gradient.into_data()]
            };
            let (half, single) = (run(dtype), run(DType::F32));
            assert_eq!(half, single.map(|data| data.convert_dtype(dtype)));
            assert!(
                half.iter().all(|data| data.iter::<f64>().all(f64::is_finite)),
                "{dtype:?}"
            );
        }
    }
}
