//! Activation functions.

use super::super::case::{Case, cases};
use super::super::draw::{Draw, Inputs, float};

pub fn cases() -> Vec<Case> {
    cases! { |a|
        relu: |d| d.one(float) => float(float);
        leaky_relu: |d| d.one(float) => float(float; 0.1f64.into());
        prelu: slopes => float(float, float);
        gelu: |d| d.one(float) => float(float);
        sigmoid: |d| d.one(float) => float(float);
        hard_sigmoid: |d| d.one(float) => float(float; 0.2f64.into(), 0.5f64.into());
        log_sigmoid: |d| d.one(float) => float(float);
        softmax: |d| d.along(float) => float(float; a[0]);
        log_softmax: |d| d.along(float) => float(float; a[0]);
        softmin: |d| d.along(float) => float(float; a[0]);
    }
}

/// A tensor, and a slope for each channel, of the tensor's number of dimensions.
fn slopes(draw: &mut Draw) -> Inputs {
    let shape = draw.shape(2, 4);
    let mut of_channels = vec![1; shape.len()];
    of_channels[1] = shape[1];
    Inputs::new([float(draw, &shape), float(draw, &of_channels)])
}
