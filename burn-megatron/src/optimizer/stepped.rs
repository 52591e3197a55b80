//! One number taken through the steps of an optimizer, for the tests of each.

use burn::optim::Optimizer;
use burn::tensor::{DType, Device, Tensor};

/// Takes a parameter through a step of rate 0.1 for each gradient, and returns its value after each.
pub(super) fn run<O: Optimizer>(optimizer: &O, start: f64, gradients: &[f64]) -> Vec<f64> {
    let device = Device::flex();
    let scalar = |value: f64| Tensor::<1>::from_data([value], (&device, DType::F64));
    let (mut parameter, mut state) = (scalar(start), None);
    let step = |gradient: &f64| {
        (parameter, state) = optimizer.step(0.1, parameter.clone(), scalar(*gradient), state.take());
        parameter.to_data().iter::<f64>().next().expect("one element")
    };
    gradients.iter().map(step).collect()
}

/// Fails unless the numbers are equal but for a few roundings of numbers around 1.
pub(super) fn assert_near(got: &[f64], expected: &[f64]) {
    let is_near = got
        .iter()
        .zip(expected)
        .all(|(got, expected)| (got - expected).abs() < 1e-15);
    assert!(is_near && got.len() == expected.len(), "{got:?} is not {expected:?}");
}
