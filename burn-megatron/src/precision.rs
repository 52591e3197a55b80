//! Rules of layers whose numbers have 16 bits: which steps run in f32, and that nothing of another type comes in.
//!
//! Parameters and what flows between layers have one element type, that of the parameters. Matrix products and sums of
//! two tensors are done in it. What adds up many numbers or takes their exponentials is not: norms, softmax, the loss,
//! activation functions, dropout's scale, the rows of an embedding's gradient. Each of these widens its input, computes
//! in f32, and narrows its result. In f32 and f64 nothing is cast, and nothing changes.
//!
//! burn computes with two tensors of different types as if the second were of the first's, or panics somewhere inside,
//! as the backend likes. So every layer checks its inputs by [`assert_dtype`].

use burn::tensor::{DType, Tensor};
pub use cubecl_kernels::precision::{is_half, narrow, widen};

/// Checks that what a layer is given has its own element type.
///
/// # Panics
/// When it has not.
#[track_caller]
pub fn assert_dtype(layer: &str, what: &str, actual: DType, expected: DType) {
    assert!(
        actual == expected,
        "{layer}: {what} must be {expected:?}, as the parameters or the other inputs are, got {actual:?}"
    );
}

/// Applies what works row by row to the rows of an input of more dimensions, as one matrix: `[a, b, c]` as `[a * b,
/// c]`.
///
/// burn sums the gradients of a weight and a bias over one leading dimension after the other and rounds between; with
/// one leading dimension there is one sum. The rows may become more or fewer, all along dimension 0.
pub(crate) fn by_rows<const D: usize>(input: Tensor<D>, forward: impl FnOnce(Tensor<2>) -> Tensor<2>) -> Tensor<D> {
    let mut shape = input.dims();
    let rows_of_each: usize = shape[1..D - 1].iter().product();
    let rows = shape[0] * rows_of_each;
    let output = forward(input.reshape([rows, shape[D - 1]]));
    let [rows, columns] = output.dims();
    shape[0] = rows / rows_of_each.max(1);
    shape[D - 1] = columns;
    output.reshape(shape)
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, TensorData};

    use super::*;

    fn tensor(dtype: DType) -> Tensor<1> {
        Tensor::from_data(TensorData::from([1.0, 2.0]), (&Device::flex().autodiff(), dtype))
    }

    #[test]
    fn only_sixteen_bits_are_widened_and_gradients_come_back_in_them() {
        for (dtype, wide) in [
            (DType::F16, DType::F32),
            (DType::BF16, DType::F32),
            (DType::F32, DType::F32),
            (DType::F64, DType::F64),
        ] {
            let leaf = tensor(dtype).require_grad();
            let widened = widen(leaf.clone());
            assert_eq!(widened.dtype(), wide);
            assert_eq!(narrow(widened.clone(), dtype).dtype(), dtype);
            let gradients = (widened.clone() * widened).sum().backward();
            let gradient = leaf.grad(&gradients).expect("tracked").into_data();
            assert_eq!(gradient, TensorData::from([2.0, 4.0]).convert_dtype(dtype));
        }
    }

    #[test]
    #[should_panic(expected = "embedding: the input must be BF16, as the parameters or the other inputs are, got F32")]
    fn another_type_is_named_with_the_layer() {
        assert_dtype("embedding", "the input", DType::F32, DType::BF16);
    }

    #[test]
    fn rows_of_more_dimensions_become_one_matrix_and_come_back() {
        let input = Tensor::<4>::ones([4, 3, 2, 5], &Device::flex());
        let output = by_rows(input, |rows| {
            assert_eq!(rows.dims(), [24, 5]);
            rows.slice([0..12, 0..3])
        });
        assert_eq!(output.dims(), [2, 3, 2, 3]);
    }
}
