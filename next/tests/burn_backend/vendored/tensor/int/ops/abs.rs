use super::*;
use burn_tensor::TensorData;

#[test]
fn should_support_abs_ops_int() {
    let tensor = TestTensorInt::<2>::placed_from([[0, -1, 2], [3, 4, -5]]);

    let output = tensor.abs();

    output
        .into_data()
        .assert_eq(&TensorData::from([[0, 1, 2], [3, 4, 5]]), false);
}

#[test]
fn should_support_abs_ops_int_signed_min() {
    let tensor = TestTensorInt::<2>::placed_from([[IntElem::MIN]]);

    let output = tensor.abs();

    output
        .into_data()
        .assert_eq(&TensorData::from([[IntElem::MIN]]), false);
}
