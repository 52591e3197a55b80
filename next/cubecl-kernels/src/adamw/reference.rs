//! AdamW in burn's operations.

use burn::tensor::{DType, Tensor};

use super::{AdamWBuffers, AdamWStep};
use crate::precision::narrow;

/// Returns the updated buffers, and the copy that is asked for.
pub fn step(
    buffers: AdamWBuffers,
    gradient: Tensor<1>,
    step: &AdamWStep,
    copy: Option<DType>,
) -> (AdamWBuffers, Option<Tensor<1>>) {
    let dtype = buffers.parameter.dtype();
    let gradient = narrow(gradient, dtype).mul_scalar(step.gradient_scale);
    let moment_1 = buffers.moment_1.mul_scalar(step.beta_1) + gradient.clone().mul_scalar(1.0 - step.beta_1);
    let square = gradient.clone() * gradient;
    let moment_2 = buffers.moment_2.mul_scalar(step.beta_2) + square.mul_scalar(1.0 - step.beta_2);
    let [correction_1, correction_2] = step.corrections();
    let denominator = moment_2
        .clone()
        .sqrt()
        .mul_scalar(1.0 / correction_2.sqrt())
        .add_scalar(step.epsilon);
    let update = moment_1.clone().mul_scalar(step.learning_rate / correction_1) / denominator;
    let parameter = buffers
        .parameter
        .mul_scalar(1.0 - step.learning_rate * step.weight_decay)
        - update;
    let copy = copy.map(|dtype| narrow(parameter.clone(), dtype));
    let buffers = AdamWBuffers {
        parameter,
        moment_1,
        moment_2,
    };
    (buffers, copy)
}
