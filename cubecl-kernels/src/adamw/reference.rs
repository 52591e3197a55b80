//! AdamW in burn's operations.

use burn::tensor::{DType, Tensor};

use super::{AdamWBuffers, AdamWRanges, AdamWStep};
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

/// Returns the buffers with the ranges updated, and the copy.
pub fn step_ranges(
    mut buffers: AdamWBuffers,
    gradient: Tensor<1>,
    steps: &[AdamWRanges],
    copy: DType,
) -> (AdamWBuffers, Tensor<1>) {
    let ranges = |step: &'_ AdamWRanges| step.ranges.clone().into_iter().filter(|range| !range.is_empty());
    for (of_step, range) in steps
        .iter()
        .flat_map(|step| ranges(step).map(move |range| (step, range)))
    {
        let part = |whole: &Tensor<1>| whole.clone().slice(range.clone());
        let own = AdamWBuffers {
            parameter: part(&buffers.parameter),
            moment_1: part(&buffers.moment_1),
            moment_2: part(&buffers.moment_2),
        };
        let (own, _) = step(own, part(&gradient), &of_step.step, None);
        buffers = AdamWBuffers {
            parameter: buffers.parameter.slice_assign(range.clone(), own.parameter),
            moment_1: buffers.moment_1.slice_assign(range.clone(), own.moment_1),
            moment_2: buffers.moment_2.slice_assign(range.clone(), own.moment_2),
        };
    }
    let copied = narrow(buffers.parameter.clone(), copy);
    (buffers, copied)
}
