//! Operations of neural networks' layers.

mod convolution;
mod pooling;

use burn_backend::TensorData;
use burn_backend::ops::{
    AttentionModuleOptions, DeformConvOptions, GridSampleOptions, InterpolateMode, InterpolateOptions, UnfoldOptions,
};

use super::super::case::{Case, Value, case, cases};
use super::super::draw::{Draw, Input, Inputs, float, fraction, halves, positive, truth};

pub fn cases() -> Vec<Case> {
    [
        linear(),
        normalised(),
        attention(),
        resampled(),
        deformed(),
        convolution::cases(),
        pooling::cases(),
    ]
    .concat()
}

fn linear() -> Vec<Case> {
    cases! { |a|
        embedding: |d| looked_up(d).0 => float(float, int);
        linear_x_backward: |d| layer(d, &[1, 2]) => float(float, float);
        linear_weight_backward: |d| layer(d, &[0, 2]) => float(float, float);
        linear_bias_backward: |d| layer(d, &[2]) => float(float);
        linear: |d| layer(d, &[0, 1]) => float(float, float; None);
        linear "with a bias": |d| layer(d, &[0, 1, 3]) => float(float, float, some_float);
        embedding_backward: looked_up_backward => float(float, float, int);
    }
}

/// Of input, weight, output and bias of a linear layer those that are asked for.
fn layer(draw: &mut Draw, which: &[usize]) -> Inputs {
    let mut input = draw.shape(1, 3);
    let (d_input, d_output) = (draw.length(), draw.length());
    let mut output = input.clone();
    input.push(d_input);
    output.push(d_output);
    let shapes = [input, vec![d_input, d_output], output, vec![d_output]];
    Inputs::new(
        which
            .iter()
            .map(|&index| float(draw, &shapes[index]))
            .collect::<Vec<_>>(),
    )
}

/// A table and indices into it; and the shape of what is found.
fn looked_up(draw: &mut Draw) -> (Inputs, Vec<usize>) {
    let (rows, width, batch, seq) = (draw.length(), draw.length(), draw.length(), draw.length());
    let inputs = Inputs::new([float(draw, &[rows, width]), draw.indices(&[batch, seq], rows)]);
    (inputs, vec![batch, seq, width])
}

fn looked_up_backward(draw: &mut Draw) -> Inputs {
    let (mut inputs, shape) = looked_up(draw);
    inputs.tensors.insert(1, float(draw, &shape));
    inputs
}

fn normalised() -> Vec<Case> {
    cases! { |a|
        layer_norm: |d| rows(d, 3) => float(float, float, some_float; 1e-5);
        layer_norm "without beta": |d| rows(d, 2) => float(float, float; None, 1e-5);
        ctc_loss: transcribed => float(float, int, int, int; 0);
    }
}

/// A tensor, and two of its last dimension.
fn rows(draw: &mut Draw, count: usize) -> Inputs {
    let mut shape = draw.shape(1, 3);
    let width = draw.longer();
    shape.push(width);
    let mut tensors = vec![float(draw, &shape)];
    tensors.extend((1..count).map(|_| float(draw, &[width])));
    Inputs::new(tensors)
}

/// Log-probabilities of `[time, batch, classes]`, targets of `[batch, length]`, and both lengths.
fn transcribed(draw: &mut Draw) -> Inputs {
    let (time, batch, classes, length) = (6 + draw.below(3), draw.length(), draw.longer(), 1 + draw.below(2));
    let targets: Vec<i64> = (0..batch * length)
        .map(|_| 1 + draw.below(classes - 1) as i64)
        .collect();
    let of_inputs: Vec<i64> = (0..batch).map(|_| (time - draw.below(2)) as i64).collect();
    let of_targets: Vec<i64> = (0..batch).map(|_| (length - draw.below(length)) as i64).collect();
    let mut scores = positive(draw, &[time, batch, classes]);
    // Below zero, as the logarithm of a probability.
    scores.data = TensorData::new(
        scores.data.iter::<f64>().map(|score| -score).collect(),
        scores.data.shape().clone(),
    );
    Inputs::new([
        scores,
        Input::new(targets, &[batch, length]),
        Input::new(of_inputs, &[batch]),
        Input::new(of_targets, &[batch]),
    ])
}

fn attention() -> Vec<Case> {
    cases! { |a|
        attention: |d| heads(d, false, false) => float(float, float, float; None, None, options(false));
        attention "with a mask": |d| heads(d, true, false) =>
            float(float, float, float, some_bool; None, options(false));
        attention "with a bias": |d| heads(d, false, true) =>
            float(float, float, float, none, some_float; options(true));
        attention "with both": |d| heads(d, true, true) =>
            float(float, float, float, some_bool, some_float; options(false));
    }
}

fn options(is_causal: bool) -> AttentionModuleOptions {
    AttentionModuleOptions {
        scale: None,
        softcap: None,
        is_causal,
    }
}

/// Query, key and value of `[batch, heads, seq, width]`; a mask and a bias of `[batch, heads, queries, keys]`.
fn heads(draw: &mut Draw, has_mask: bool, has_bias: bool) -> Inputs {
    let (batch, heads, queries, keys) = (draw.length(), draw.length(), draw.longer(), draw.longer());
    let (width, of_value) = (draw.longer(), draw.longer());
    let mut tensors = vec![
        float(draw, &[batch, heads, queries, width]),
        float(draw, &[batch, heads, keys, width]),
        float(draw, &[batch, heads, keys, of_value]),
    ];
    let scores = [batch, heads, queries, keys];
    if has_mask {
        let mut mask = truth(draw, &scores);
        // A query that may see nothing is not a number.
        let visible = mask
            .data
            .iter::<bool>()
            .enumerate()
            .map(|(index, hidden)| hidden && index % keys > 0);
        mask.data = TensorData::new(visible.collect::<Vec<bool>>(), scores);
        tensors.push(mask);
    }
    if has_bias {
        tensors.push(float(draw, &scores));
    }
    Inputs::new(tensors)
}

fn resampled() -> Vec<Case> {
    cases! { |a|
        interpolate: |d| enlarged(d, false) =>
            float(float; [a[0], a[1]], InterpolateOptions::new(InterpolateMode::Bilinear));
        interpolate "nearest": |d| enlarged(d, false) =>
            float(float; [a[0], a[1]], InterpolateOptions::new(InterpolateMode::Nearest));
        interpolate_backward: |d| enlarged(d, true) =>
            float(float, float; [a[0], a[1]], InterpolateOptions::new(InterpolateMode::Nearest));
        float_grid_sample_2d: sampled => float(float, float; GridSampleOptions::default());
        unfold4d: |d| image(d, &[]) => float(float; [2, 2], UnfoldOptions::new([1, 2], [1, 0], [1, 1]));
    }
}

/// An image of `[batch, channels, height, width]`, and more tensors of shapes that begin with its batch and channels.
fn image(draw: &mut Draw, others: &[[usize; 2]]) -> Inputs {
    let (batch, channels) = (draw.length(), draw.length());
    let (height, width) = (4 + draw.below(3), 4 + draw.below(3));
    let mut tensors = vec![float(draw, &[batch, channels, height, width])];
    tensors.extend(
        others
            .iter()
            .map(|&[height, width]| float(draw, &[batch, channels, height, width])),
    );
    Inputs::new(tensors)
}

fn enlarged(draw: &mut Draw, has_gradient: bool) -> Inputs {
    let to = [5 + draw.below(3), 5 + draw.below(3)];
    if has_gradient {
        image(draw, &[to])
    } else {
        image(draw, &[])
    }
    .with(to)
}

fn sampled(draw: &mut Draw) -> Inputs {
    let mut inputs = image(draw, &[]);
    let batch = inputs.tensors[0].data.shape()[0];
    inputs.tensors.push(fraction(draw, &[batch, 3, 5, 2]));
    inputs
}

fn deformed() -> Vec<Case> {
    let mut cases = cases! { |a|
        deform_conv2d: |d| deformable(d, true) =>
            float(float, float, float, some_float, some_float; deform_options());
        deform_conv2d "alone": |d| deformable(d, false) => float(float, float, float; None, None, deform_options());
    };
    cases.extend([
        case!(
            "deform_conv2d_backward",
            |d| deformable_backward(d, true),
            |_, values| {
                let (x, offset, weight) = (values.float(), values.float(), values.float());
                let (mask, bias) = (Some(values.float()), Some(values.float()));
                let gradients =
                    B::deform_conv2d_backward(x, offset, weight, mask, bias, values.float(), deform_options());
                [
                    gradients.x_grad,
                    gradients.offset_grad,
                    gradients.weight_grad,
                    gradients.mask_grad.expect("there is a mask"),
                    gradients.bias_grad.expect("there is a bias"),
                ]
                .map(Value::Float)
            }
        ),
        case!(
            "deform_conv2d_backward alone",
            |d| deformable_backward(d, false),
            |_, values| {
                let (x, offset, weight) = (values.float(), values.float(), values.float());
                let gradients =
                    B::deform_conv2d_backward(x, offset, weight, None, None, values.float(), deform_options());
                [gradients.x_grad, gradients.offset_grad, gradients.weight_grad].map(Value::Float)
            }
        ),
    ]);
    cases
}

fn deform_options() -> DeformConvOptions<2> {
    DeformConvOptions::new([1, 1], [0, 0], [1, 1], 1, 1)
}

/// Input, offset, weight, and mask and bias. They are halves: with these burn-flex, which computes in 32 bits here,
/// does not round.
fn deformable(draw: &mut Draw, has_mask_and_bias: bool) -> Inputs {
    let (batch, channels, output) = (draw.length(), draw.length(), draw.length());
    let mut tensors = vec![
        halves(draw, &[batch, channels, 4, 5]),
        halves(draw, &[batch, 8, 3, 4]),
        halves(draw, &[output, channels, 2, 2]),
    ];
    if has_mask_and_bias {
        tensors.push(halves(draw, &[batch, 4, 3, 4]));
        tensors.push(halves(draw, &[output]));
    }
    Inputs::new(tensors)
}

fn deformable_backward(draw: &mut Draw, has_mask_and_bias: bool) -> Inputs {
    let mut inputs = deformable(draw, has_mask_and_bias);
    let (batch, output) = (inputs.tensors[0].data.shape()[0], inputs.tensors[2].data.shape()[0]);
    inputs.tensors.push(halves(draw, &[batch, output, 3, 4]));
    inputs
}
