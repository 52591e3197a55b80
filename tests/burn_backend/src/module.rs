//! Functions of burn's with the arguments that they had at the commit of the tests.

use burn_tensor::ops::{AvgPoolOptions, InterpolateOptions, MaxPoolOptions};
use burn_tensor::{Int, Tensor, module};

pub fn avg_pool1d(
    x: Tensor<3>,
    kernel_size: usize,
    stride: usize,
    padding: usize,
    count_include_pad: bool,
    ceil_mode: bool,
) -> Tensor<3> {
    let options = AvgPoolOptions::new([kernel_size]).with_stride([stride]);
    let options = options
        .with_padding([padding])
        .with_count_include_pad(count_include_pad);
    module::avg_pool1d(x, options.with_ceil_mode(ceil_mode))
}

pub fn avg_pool2d(
    x: Tensor<4>,
    kernel_size: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    count_include_pad: bool,
    ceil_mode: bool,
) -> Tensor<4> {
    let options = AvgPoolOptions::new(kernel_size).with_stride(stride);
    let options = options.with_padding(padding).with_count_include_pad(count_include_pad);
    module::avg_pool2d(x, options.with_ceil_mode(ceil_mode))
}

pub fn max_pool1d(
    x: Tensor<3>,
    kernel_size: usize,
    stride: usize,
    padding: usize,
    dilation: usize,
    ceil_mode: bool,
) -> Tensor<3> {
    module::max_pool1d(x, maximum([kernel_size], [stride], [padding], [dilation], ceil_mode))
}

pub fn max_pool1d_with_indices(
    x: Tensor<3>,
    kernel_size: usize,
    stride: usize,
    padding: usize,
    dilation: usize,
    ceil_mode: bool,
) -> (Tensor<3>, Tensor<3, Int>) {
    module::max_pool1d_with_indices(x, maximum([kernel_size], [stride], [padding], [dilation], ceil_mode))
}

pub fn max_pool2d(
    x: Tensor<4>,
    kernel_size: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
    ceil_mode: bool,
) -> Tensor<4> {
    module::max_pool2d(x, maximum(kernel_size, stride, padding, dilation, ceil_mode))
}

pub fn max_pool2d_with_indices(
    x: Tensor<4>,
    kernel_size: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
    ceil_mode: bool,
) -> (Tensor<4>, Tensor<4, Int>) {
    module::max_pool2d_with_indices(x, maximum(kernel_size, stride, padding, dilation, ceil_mode))
}

fn maximum<const N: usize>(
    kernel_size: [usize; N],
    stride: [usize; N],
    padding: [usize; N],
    dilation: [usize; N],
    ceil_mode: bool,
) -> MaxPoolOptions<N> {
    let options = MaxPoolOptions::new(kernel_size)
        .with_stride(stride)
        .with_padding(padding);
    options.with_dilation(dilation).with_ceil_mode(ceil_mode)
}

pub fn interpolate(x: Tensor<4>, output_size: [usize; 2], options: InterpolateOptions) -> Tensor<4> {
    module::interpolate(x, options.with_output_size(output_size))
}
