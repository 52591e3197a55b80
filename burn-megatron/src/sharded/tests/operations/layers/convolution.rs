//! Convolutions and their gradients, in one to three dimensions.

use burn_backend::ops::{ConvOptions, ConvTransposeOptions};

use super::super::super::case::{Case, cases};
use super::super::super::draw::{Draw, Inputs, float};

pub fn cases() -> Vec<Case> {
    [
        convolution!(
            1, false, options, &[0, 1, 3] => (float, float, float);
            conv1d, conv1d_x_backward, conv1d_weight_backward, conv1d_bias_backward
        ),
        convolution!(
            2, false, options, &[0, 1, 3] => (float, float, float);
            conv2d, conv2d_x_backward, conv2d_weight_backward, conv2d_bias_backward
        ),
        convolution!(
            3, false, options, &[0, 1, 3] => (float, float, float);
            conv3d, conv3d_x_backward, conv3d_weight_backward, conv3d_bias_backward
        ),
        convolution!(
            1, true, transposed_options, &[1, 3] => (float, float);
            conv_transpose1d, conv_transpose1d_x_backward, conv_transpose1d_weight_backward,
            conv_transpose1d_bias_backward
        ),
        convolution!(
            2, true, transposed_options, &[1, 3] => (float, float);
            conv_transpose2d, conv_transpose2d_x_backward, conv_transpose2d_weight_backward,
            conv_transpose2d_bias_backward
        ),
        convolution!(
            3, true, transposed_options, &[1, 3] => (float, float);
            conv_transpose3d, conv_transpose3d_x_backward, conv_transpose3d_weight_backward,
            conv_transpose3d_bias_backward
        ),
    ]
    .concat()
}

macro_rules! convolution {
    (
        $dimensions:literal, $is_transposed:literal, $options:ident, $x_operands:expr => ( $( $x_operand:ident ),* );
        $forward:ident, $x_backward:ident, $weight_backward:ident, $bias_backward:ident
    ) => {
        cases! { |a|
            $forward: |d| parts(d, $dimensions, $is_transposed, &[0, 1, 2]) =>
                float(float, float, some_float; $options(a[0]));
            $forward "without a bias": |d| parts(d, $dimensions, $is_transposed, &[0, 1]) =>
                float(float, float; None, $options(a[0]));
            $x_backward: |d| parts(d, $dimensions, $is_transposed, $x_operands) =>
                float($( $x_operand ),*; $options(a[0]));
            $weight_backward: |d| parts(d, $dimensions, $is_transposed, &[0, 1, 3]) =>
                float(float, float, float; $options(a[0]));
            $bias_backward: |d| parts(d, $dimensions, $is_transposed, &[0, 2, 3]) => float(float, float, float);
        }
    };
}
use convolution;

fn options<const D: usize>(groups: usize) -> ConvOptions<D> {
    ConvOptions::new([1; D], [1; D], [1; D], groups)
}

fn transposed_options<const D: usize>(groups: usize) -> ConvTransposeOptions<D> {
    ConvTransposeOptions::new([1; D], [0; D], [0; D], [1; D], groups)
}

/// Of input, weight, bias and output those that are asked for; the number of groups.
fn parts(draw: &mut Draw, dimensions: usize, is_transposed: bool, which: &[usize]) -> Inputs {
    const KERNEL: usize = 2;
    let groups = draw.pick(&[1, 1, 1, 2]);
    let batch = draw.length();
    let (input, output) = (draw.below(4) + 1, draw.below(4) + 1);
    let (input, output) = (input * groups, output * groups);
    let size = match dimensions {
        3 => 3,
        _ => 4 + draw.below(2),
    };
    // Without strides: padding of 1 on each side makes a convolution's result larger than its input, by one.
    let of_output = size + 1;
    let shape = |first: usize, second: usize, size: usize| [&[first, second][..], &vec![size; dimensions]].concat();
    let weight = if is_transposed {
        shape(input, output / groups, KERNEL)
    } else {
        shape(output, input / groups, KERNEL)
    };
    let shapes = [
        shape(batch, input, size),
        weight,
        vec![output],
        shape(batch, output, of_output),
    ];
    Inputs::new(
        which
            .iter()
            .map(|&index| float(draw, &shapes[index]))
            .collect::<Vec<_>>(),
    )
    .with([groups])
}
