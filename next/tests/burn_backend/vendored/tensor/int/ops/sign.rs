use super::*;
use burn_tensor::TensorData;

#[test]
fn should_support_sign_ops_int() {
    let tensor = TestTensorInt::<2>::placed_from([[-2, -1, 2], [3, 0, -5]]);

    let output = tensor.sign();
    let expected = TensorData::from([[-1, -1, 1], [1, 0, -1]]);

    output.into_data().assert_eq(&expected, false);
}
