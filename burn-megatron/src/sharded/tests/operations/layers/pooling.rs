//! Pooling and its gradients.

use burn_backend::IntDType;

use super::super::super::case::{Case, Value, case, cases};
use super::super::super::draw::{Draw, Inputs, float};

pub fn cases() -> Vec<Case> {
    [without_indices(), with_indices()].concat()
}

fn without_indices() -> Vec<Case> {
    cases! { |a|
        avg_pool1d: |d| pooled(d, &[0]) => float(float; 2, 1, 1, true, false);
        avg_pool1d_backward: |d| pooled(d, &[0, 7]) => float(float, float; 2, 1, 1, true, false);
        avg_pool2d: |d| pooled(d, &[0, 0]) => float(float; [2, 2], [1, 1], [1, 1], false, false);
        avg_pool2d_backward: |d| pooled(d, &[0, 0, 7, 7]) =>
            float(float, float; [2, 2], [1, 1], [1, 1], false, false);
        adaptive_avg_pool1d: |d| pooled(d, &[0]) => float(float; 4);
        adaptive_avg_pool1d_backward: |d| pooled(d, &[0, 4]) => float(float, float);
        adaptive_avg_pool2d: |d| pooled(d, &[0, 0]) => float(float; [4, 3]);
        adaptive_avg_pool2d_backward: |d| pooled(d, &[0, 0, 4, 3]) => float(float, float);
        adaptive_avg_pool3d: |d| pooled(d, &[0, 0, 0]) => float(float; [4, 3, 2]);
        adaptive_avg_pool3d_backward: |d| pooled(d, &[0, 0, 0, 4, 3, 2]) => float(float, float);
        max_pool1d: |d| pooled(d, &[0]) => float(float; 2, 2, 0, 1, false);
        max_pool2d: |d| pooled(d, &[0, 0]) => float(float; [2, 2], [2, 2], [0, 0], [1, 1], false);
    }
}

fn with_indices() -> Vec<Case> {
    vec![
        case!("max_pool1d_with_indices", |d| pooled(d, &[0]), |_, values| {
            let pooled = B::max_pool1d_with_indices(values.float(), 2, 2, 0, 1, false, IntDType::I64);
            [Value::Float(pooled.output), Value::Int(pooled.indices)]
        }),
        case!(
            "max_pool1d_with_indices_backward",
            |d| pooled(d, &[0, 3]),
            |_, values| {
                // The indices are those of the forward pass, cut as its result is.
                let (x, gradient) = (values.float(), values.float());
                let indices = B::max_pool1d_with_indices(x.clone(), 2, 2, 0, 1, false, IntDType::I64).indices;
                let pooled = B::max_pool1d_with_indices_backward(x, 2, 2, 0, 1, false, gradient, indices);
                [Value::Float(pooled.x_grad)]
            }
        ),
        case!("max_pool2d_with_indices", |d| pooled(d, &[0, 0]), |_, values| {
            let pooled =
                B::max_pool2d_with_indices(values.float(), [2, 2], [2, 2], [0, 0], [1, 1], false, IntDType::I64);
            [Value::Float(pooled.output), Value::Int(pooled.indices)]
        }),
        case!(
            "max_pool2d_with_indices_backward",
            |d| pooled(d, &[0, 0, 3, 3]),
            |_, values| {
                let (x, gradient) = (values.float(), values.float());
                let indices =
                    B::max_pool2d_with_indices(x.clone(), [2, 2], [2, 2], [0, 0], [1, 1], false, IntDType::I64).indices;
                let pooled =
                    B::max_pool2d_with_indices_backward(x, [2, 2], [2, 2], [0, 0], [1, 1], false, gradient, indices);
                [Value::Float(pooled.x_grad)]
            }
        ),
    ]
}

/// A tensor of batch, channels, and six elements in each of the dimensions whose length is given as 0; and another of
/// the same batch and channels, of the lengths that follow.
fn pooled(draw: &mut Draw, lengths: &[usize]) -> Inputs {
    let (batch, channels) = (draw.length(), draw.length());
    let of = |lengths: Vec<usize>| [vec![batch, channels], lengths].concat();
    let (own, others): (Vec<usize>, Vec<usize>) = lengths.iter().partition(|&&length| length == 0);
    let mut tensors = vec![float(draw, &of(vec![6; own.len()]))];
    if !others.is_empty() {
        tensors.push(float(draw, &of(others)));
    }
    Inputs::new(tensors)
}
