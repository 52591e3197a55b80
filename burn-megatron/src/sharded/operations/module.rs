//! Operations of neural networks' layers.

use burn_backend::ops::{
    AttentionModuleOptions, ConvOptions, ConvTransposeOptions, DeformConv2dBackward, DeformConvOptions,
    InterpolateOptions, MaxPool1dBackward, MaxPool1dWithIndices, MaxPool2dBackward, MaxPool2dWithIndices, ModuleOps,
    UnfoldOptions,
};
use burn_backend::tensor::IndexingUpdateOp;
use burn_backend::{IntDType, Shape, TensorMetadata};

use super::super::apply::apply;
use super::super::kind::{Bool, Float, Int};
use super::super::rules::index::{Embedding, EmbeddingGradient};
use super::super::rules::matmul::{Linear, LinearBiasGradient, LinearInputGradient, LinearWeightGradient};
use super::super::rules::module::Named;
use super::super::rules::reduce::Rows;
use super::super::{Sharded, ShardedTensor};
use super::indexing::localised;
use super::operations;
use super::rows::{by_rows, rows};

type FloatSharded<B> = ShardedTensor<B, Float>;
type IntSharded<B> = ShardedTensor<B, Int>;

/// A convolution and its gradients: dimensions of batch (`b`), input (`i`) and output (`o`) channels.
macro_rules! convolution {
    (
        $options:ty, $input:literal, $weight:literal, $output:literal;
        $forward:ident, $x_backward:ident, $weight_backward:ident, $bias_backward:ident
    ) => {
        fn $x_backward(
            x: FloatSharded<B>,
            weight: FloatSharded<B>,
            output_grad: FloatSharded<B>,
            options: $options,
        ) -> FloatSharded<B> {
            let names = concat!($input, ",", $weight, ",", $output, "->", $input);
            let rule = in_groups(Named::new(names).parameters(&[1]).linear(&[1, 2]), options.groups);
            apply(stringify!($x_backward), (x, weight, output_grad), || Box::new(rule), |(x, weight, output_grad), _| {
                B::$x_backward(x, weight, output_grad, options)
            })
        }

        convolution!(
            @ $options, $input, $weight, $output;
            $forward, $weight_backward, $bias_backward
        );
    };
    (
        @ $options:ty, $input:literal, $weight:literal, $output:literal;
        $forward:ident, $weight_backward:ident, $bias_backward:ident
    ) => {
        fn $forward(
            x: FloatSharded<B>,
            weight: FloatSharded<B>,
            bias: Option<FloatSharded<B>>,
            options: $options,
        ) -> FloatSharded<B> {
            let names = concat!($input, ",", $weight, ",o->", $output);
            let named = Named::new(names).parameters(&[1, 2]).added(&[2]).linear(&[0, 1]);
            let rule = in_groups(named, options.groups);
            apply(stringify!($forward), (x, weight, bias), || Box::new(rule), |(x, weight, bias), _| {
                B::$forward(x, weight, bias, options)
            })
        }

        fn $weight_backward(
            x: FloatSharded<B>,
            weight: FloatSharded<B>,
            output_grad: FloatSharded<B>,
            options: $options,
        ) -> FloatSharded<B> {
            let names = concat!($input, ",", $weight, ",", $output, "->", $weight);
            let rule = in_groups(Named::new(names).parameters(&[1]).linear(&[0, 2]), options.groups);
            let name = stringify!($weight_backward);
            apply(name, (x, weight, output_grad), || Box::new(rule), |(x, weight, output_grad), _| {
                B::$weight_backward(x, weight, output_grad, options)
            })
        }

        fn $bias_backward(
            x: FloatSharded<B>,
            bias: FloatSharded<B>,
            output_grad: FloatSharded<B>,
        ) -> FloatSharded<B> {
            // Of the input the batch alone is looked at.
            let names = concat!($input, ",o,", $output, "->o");
            let rule = Named::new(names).parameters(&[1]).linear(&[2]).fixed(b"i");
            apply(stringify!($bias_backward), (x, bias, output_grad), || Box::new(rule), |(x, bias, output_grad), _| {
                B::$bias_backward(x, bias, output_grad)
            })
        }
    };
    (
        transposed $options:ty, $input:literal, $weight:literal, $output:literal;
        $forward:ident, $x_backward:ident, $weight_backward:ident, $bias_backward:ident
    ) => {
        fn $x_backward(
            weight: FloatSharded<B>,
            output_grad: FloatSharded<B>,
            options: $options,
        ) -> FloatSharded<B> {
            let names = concat!($weight, ",", $output, "->", $input);
            let rule = in_groups(Named::new(names).parameters(&[0]).linear(&[0, 1]), options.groups);
            apply(stringify!($x_backward), (weight, output_grad), || Box::new(rule), |(weight, output_grad), _| {
                B::$x_backward(weight, output_grad, options)
            })
        }

        convolution!(
            @ $options, $input, $weight, $output;
            $forward, $weight_backward, $bias_backward
        );
    };
}

operations! {
    ModuleOps, RULES;

    layer_norm(tensor: Float, gamma: Float, beta: [Float]; epsilon: f64) -> Float = Rows;

    unfold4d(x: Float; kernel_size: [usize; 2], options: UnfoldOptions) -> Float = Named::new("b...->b..");
    avg_pool1d(
        x: Float;
        kernel_size: usize, stride: usize, padding: usize, count_include_pad: bool, ceil_mode: bool
    ) -> Float = Named::new("bc.->bc.").linear(&[0]);
    avg_pool1d_backward(
        x: Float, grad: Float;
        kernel_size: usize, stride: usize, padding: usize, count_include_pad: bool, ceil_mode: bool
    ) -> Float = Named::new("bc.,bc.->bc.").linear(&[1]);
    avg_pool2d(
        x: Float;
        kernel_size: [usize; 2], stride: [usize; 2], padding: [usize; 2], count_include_pad: bool, ceil_mode: bool
    ) -> Float = Named::new("bc..->bc..").linear(&[0]);
    avg_pool2d_backward(
        x: Float, grad: Float;
        kernel_size: [usize; 2], stride: [usize; 2], padding: [usize; 2], count_include_pad: bool, ceil_mode: bool
    ) -> Float = Named::new("bc..,bc..->bc..").linear(&[1]);
    adaptive_avg_pool1d(x: Float; output_size: usize) -> Float = Named::new("bc.->bc.").linear(&[0]);
    adaptive_avg_pool1d_backward(x: Float, grad: Float) -> Float = Named::new("bc.,bc.->bc.").linear(&[1]);
    adaptive_avg_pool2d(x: Float; output_size: [usize; 2]) -> Float = Named::new("bc..->bc..").linear(&[0]);
    adaptive_avg_pool2d_backward(x: Float, grad: Float) -> Float = Named::new("bc..,bc..->bc..").linear(&[1]);
    adaptive_avg_pool3d(x: Float; output_size: [usize; 3]) -> Float = Named::new("bc...->bc...").linear(&[0]);
    adaptive_avg_pool3d_backward(x: Float, grad: Float) -> Float = Named::new("bc...,bc...->bc...").linear(&[1]);
    max_pool1d(
        x: Float;
        kernel_size: usize, stride: usize, padding: usize, dilation: usize, ceil_mode: bool
    ) -> Float = Named::new("bc.->bc.");
    max_pool2d(
        x: Float;
        kernel_size: [usize; 2], stride: [usize; 2], padding: [usize; 2], dilation: [usize; 2], ceil_mode: bool
    ) -> Float = Named::new("bc..->bc..");
    interpolate(x: Float; output_size: [usize; 2], options: InterpolateOptions) -> Float =
        Named::new("bc..->bc..").linear(&[0]);
    interpolate_backward(x: Float, grad: Float; output_size: [usize; 2], options: InterpolateOptions) -> Float =
        Named::new("bc..,bc..->bc..").linear(&[1]);
    attention(
        query: Float, key: Float, value: Float, mask: [Bool], attn_bias: [Float];
        options: AttentionModuleOptions
    ) -> Float = Named::new("bh..,bh..,bh..,bh..,bh..->bh..");
    ctc_loss(
        log_probs: Float, targets: Int, input_lengths: Int, target_lengths: Int; blank: usize
    ) -> Float = Named::new(".b.,b.,b,b->b");
    ctc_loss_backward(
        log_probs: Float, targets: Int, input_lengths: Int, target_lengths: Int, grad_loss: Float; blank: usize
    ) -> Float = Named::new(".b.,b.,b,b,b->.b.");

    ; written {
        linear = "Linear";
        linear_x_backward = "LinearInputGradient";
        linear_weight_backward = "LinearWeightGradient";
        linear_bias_backward = "LinearBiasGradient";
        embedding = "Embedding";
        embedding_backward = "EmbeddingGradient";
        conv1d = "Named(\"bi.,oi.,o->bo.\")";
        conv1d_x_backward = "Named(\"bi.,oi.,bo.->bi.\")";
        conv1d_weight_backward = "Named(\"bi.,oi.,bo.->oi.\")";
        conv1d_bias_backward = "Named(\"bi.,o,bo.->o\")";
        conv2d = "Named(\"bi..,oi..,o->bo..\")";
        conv2d_x_backward = "Named(\"bi..,oi..,bo..->bi..\")";
        conv2d_weight_backward = "Named(\"bi..,oi..,bo..->oi..\")";
        conv2d_bias_backward = "Named(\"bi..,o,bo..->o\")";
        conv3d = "Named(\"bi...,oi...,o->bo...\")";
        conv3d_x_backward = "Named(\"bi...,oi...,bo...->bi...\")";
        conv3d_weight_backward = "Named(\"bi...,oi...,bo...->oi...\")";
        conv3d_bias_backward = "Named(\"bi...,o,bo...->o\")";
        conv_transpose1d = "Named(\"bi.,io.,o->bo.\")";
        conv_transpose1d_x_backward = "Named(\"io.,bo.->bi.\")";
        conv_transpose1d_weight_backward = "Named(\"bi.,io.,bo.->io.\")";
        conv_transpose1d_bias_backward = "Named(\"bi.,o,bo.->o\")";
        conv_transpose2d = "Named(\"bi..,io..,o->bo..\")";
        conv_transpose2d_x_backward = "Named(\"io..,bo..->bi..\")";
        conv_transpose2d_weight_backward = "Named(\"bi..,io..,bo..->io..\")";
        conv_transpose2d_bias_backward = "Named(\"bi..,o,bo..->o\")";
        conv_transpose3d = "Named(\"bi...,io...,o->bo...\")";
        conv_transpose3d_x_backward = "Named(\"io...,bo...->bi...\")";
        conv_transpose3d_weight_backward = "Named(\"bi...,io...,bo...->io...\")";
        conv_transpose3d_bias_backward = "Named(\"bi...,o,bo...->o\")";
        deform_conv2d = "Named(\"b...,b...,....,b...,.->b...\")";
        deform_conv2d_backward = "Named(\"b...,b...,....,b...,b...->b...,b...,....,b...,.\")";
        max_pool1d_with_indices = "Named(\"bc.->bc.,bc.\")";
        max_pool1d_with_indices_backward = "Named(\"bc.,bc.,bc.->bc.\")";
        max_pool2d_with_indices = "Named(\"bc..->bc..,bc..\")";
        max_pool2d_with_indices_backward = "Named(\"bc..,bc..,bc..->bc..\")";
    }

    fn has_ctc_loss_backward() -> bool {
        B::has_ctc_loss_backward()
    }

    fn linear(x: FloatSharded<B>, weight: FloatSharded<B>, bias: Option<FloatSharded<B>>) -> FloatSharded<B> {
        apply("linear", (x, weight, bias), || Box::new(Linear), |(x, weight, bias), placed| {
            by_rows::<B>(x, placed, |x| B::linear(x, weight, bias))
        })
    }

    fn linear_x_backward(weight: FloatSharded<B>, output_grad: FloatSharded<B>) -> FloatSharded<B> {
        let inputs = (weight, output_grad);
        apply("linear_x_backward", inputs, || Box::new(LinearInputGradient), |(weight, gradient), placed| {
            by_rows::<B>(gradient, placed, |gradient| B::linear_x_backward(weight, gradient))
        })
    }

    fn linear_weight_backward(x: FloatSharded<B>, output_grad: FloatSharded<B>) -> FloatSharded<B> {
        let inputs = (x, output_grad);
        apply("linear_weight_backward", inputs, || Box::new(LinearWeightGradient), |(x, gradient), placed| {
            B::linear_weight_backward(rows::<B>(x, placed), rows::<B>(gradient, placed))
        })
    }

    fn linear_bias_backward(output_grad: FloatSharded<B>) -> FloatSharded<B> {
        apply("linear_bias_backward", output_grad, || Box::new(LinearBiasGradient), |gradient, placed| {
            B::linear_bias_backward(rows::<B>(gradient, placed))
        })
    }

    fn embedding(weights: FloatSharded<B>, indices: IntSharded<B>) -> FloatSharded<B> {
        let rows = weights.shape()[0];
        apply("embedding", (weights, indices), || Box::new(Embedding), |(weights, indices), placed| {
            if placed.has_all(0, 0) {
                return B::embedding(weights, indices);
            }
            let (indices, outside) = localised::<B>(indices, placed.operand_range(0, 0, rows));
            let found = B::embedding(weights, indices);
            let (shape, mut of_tokens) = (found.shape(), found.shape().to_vec());
            *of_tokens.last_mut().expect("rows have a width") = 1;
            let outside = B::bool_expand(B::bool_reshape(outside, Shape::from(of_tokens)), shape);
            B::float_mask_fill(found, outside, 0.0f64.into())
        })
    }

    fn embedding_backward(
        weights: FloatSharded<B>,
        output_grad: FloatSharded<B>,
        indices: IntSharded<B>,
    ) -> FloatSharded<B> {
        let table = weights.shape();
        let device = weights.device();
        // The table's elements are not read, and not moved.
        let inputs = (weights, output_grad, indices);
        apply("embedding_backward", inputs, || Box::new(EmbeddingGradient), |(_, gradient, indices), placed| {
            let count = indices.shape().num_elements();
            let shape = placed.result_shape(0, &table);
            let gradient = B::float_reshape(gradient, Shape::new([count, shape[1]]));
            let indices = B::int_reshape(indices, Shape::new([count]));
            let dtype = gradient.dtype().into();
            let range = placed.result_range(0, 0, table[0]);
            let sums = B::float_zeros(shape.clone(), &device, dtype);
            if range.len() == table[0] {
                return B::float_select_assign(sums, 0, indices, gradient, IndexingUpdateOp::Add);
            }
            let (indices, outside) = localised::<B>(indices, range);
            let outside = B::bool_reshape(outside, Shape::new([count, 1]));
            let outside = B::bool_expand(outside, Shape::new([count, shape[1]]));
            let gradient = B::float_mask_fill(gradient, outside, 0.0f64.into());
            B::float_select_assign(sums, 0, indices, gradient, IndexingUpdateOp::Add)
        })
    }

    convolution!(
        ConvOptions<1>, "bi.", "oi.", "bo.";
        conv1d, conv1d_x_backward, conv1d_weight_backward, conv1d_bias_backward
    );
    convolution!(
        ConvOptions<2>, "bi..", "oi..", "bo..";
        conv2d, conv2d_x_backward, conv2d_weight_backward, conv2d_bias_backward
    );
    convolution!(
        ConvOptions<3>, "bi...", "oi...", "bo...";
        conv3d, conv3d_x_backward, conv3d_weight_backward, conv3d_bias_backward
    );
    convolution!(
        transposed ConvTransposeOptions<1>, "bi.", "io.", "bo.";
        conv_transpose1d, conv_transpose1d_x_backward, conv_transpose1d_weight_backward, conv_transpose1d_bias_backward
    );
    convolution!(
        transposed ConvTransposeOptions<2>, "bi..", "io..", "bo..";
        conv_transpose2d, conv_transpose2d_x_backward, conv_transpose2d_weight_backward, conv_transpose2d_bias_backward
    );
    convolution!(
        transposed ConvTransposeOptions<3>, "bi...", "io...", "bo...";
        conv_transpose3d, conv_transpose3d_x_backward, conv_transpose3d_weight_backward, conv_transpose3d_bias_backward
    );

    fn deform_conv2d(
        x: FloatSharded<B>,
        offset: FloatSharded<B>,
        weight: FloatSharded<B>,
        mask: Option<FloatSharded<B>>,
        bias: Option<FloatSharded<B>>,
        options: DeformConvOptions<2>,
    ) -> FloatSharded<B> {
        let names = match mask {
            Some(_) => "b...,b...,....,b...,.->b...",
            None => "b...,b...,....,.->b...",
        };
        let rule = || Box::new(Named::new(names)) as _;
        apply("deform_conv2d", (x, offset, weight, mask, bias), rule, |(x, offset, weight, mask, bias), _| {
            B::deform_conv2d(x, offset, weight, mask, bias, options)
        })
    }

    fn deform_conv2d_backward(
        x: FloatSharded<B>,
        offset: FloatSharded<B>,
        weight: FloatSharded<B>,
        mask: Option<FloatSharded<B>>,
        bias: Option<FloatSharded<B>>,
        output_grad: FloatSharded<B>,
        options: DeformConvOptions<2>,
    ) -> DeformConv2dBackward<Sharded<B>> {
        // All gradients are linear in the output's, the last operand.
        let (names, last): (_, &[usize]) = match (&mask, &bias) {
            (Some(_), Some(_)) => ("b...,b...,....,b...,.,b...->b...,b...,....,b...,.", &[5]),
            (Some(_), None) => ("b...,b...,....,b...,b...->b...,b...,....,b...,.", &[4]),
            (None, Some(_)) => ("b...,b...,....,.,b...->b...,b...,....,b...,.", &[4]),
            (None, None) => ("b...,b...,....,b...->b...,b...,....,b...,.", &[3]),
        };
        // Of the weight and the bias each rank has the terms of its samples.
        let rule = || Box::new(Named::new(names).linear(last)) as _;
        let inputs = (x, offset, weight, mask, bias, output_grad);
        let gradients: Vec<Option<FloatSharded<B>>> = apply(
            "deform_conv2d_backward",
            inputs,
            rule,
            |(x, offset, weight, mask, bias, output_grad), _| {
                let gradients = B::deform_conv2d_backward(x, offset, weight, mask, bias, output_grad, options);
                vec![
                    Some(gradients.x_grad),
                    Some(gradients.offset_grad),
                    Some(gradients.weight_grad),
                    gradients.mask_grad,
                    gradients.bias_grad,
                ]
            },
        );
        let mut gradients = gradients.into_iter();
        let mut next = || gradients.next().expect("there are five");
        let [x, offset, weight, mask, bias] = std::array::from_fn(|_| next());
        let given = |gradient: Option<FloatSharded<B>>| gradient.expect("the backend computes it");
        DeformConv2dBackward::new(given(x), given(offset), given(weight), mask, bias)
    }

    fn max_pool1d_with_indices(
        x: FloatSharded<B>,
        kernel_size: usize,
        stride: usize,
        padding: usize,
        dilation: usize,
        ceil_mode: bool,
        indices_dtype: IntDType,
    ) -> MaxPool1dWithIndices<Sharded<B>> {
        let rule = || Box::new(Named::new("bc.->bc.,bc.")) as _;
        let (output, indices) = apply("max_pool1d_with_indices", x, rule, |x, _| {
            let dtype = indices_dtype;
            let pooled = B::max_pool1d_with_indices(x, kernel_size, stride, padding, dilation, ceil_mode, dtype);
            (pooled.output, pooled.indices)
        });
        MaxPool1dWithIndices::new(output, indices)
    }

    fn max_pool1d_with_indices_backward(
        x: FloatSharded<B>,
        kernel_size: usize,
        stride: usize,
        padding: usize,
        dilation: usize,
        ceil_mode: bool,
        output_grad: FloatSharded<B>,
        indices: IntSharded<B>,
    ) -> MaxPool1dBackward<Sharded<B>> {
        let rule = || Box::new(Named::new("bc.,bc.,bc.->bc.").linear(&[1])) as _;
        let inputs = (x, output_grad, indices);
        MaxPool1dBackward::new(apply("max_pool1d_with_indices_backward", inputs, rule, |(x, gradient, indices), _| {
            B::max_pool1d_with_indices_backward(x, kernel_size, stride, padding, dilation, ceil_mode, gradient, indices)
                .x_grad
        }))
    }

    fn max_pool2d_with_indices(
        x: FloatSharded<B>,
        kernel_size: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
        dilation: [usize; 2],
        ceil_mode: bool,
        indices_dtype: IntDType,
    ) -> MaxPool2dWithIndices<Sharded<B>> {
        let rule = || Box::new(Named::new("bc..->bc..,bc..")) as _;
        let (output, indices) = apply("max_pool2d_with_indices", x, rule, |x, _| {
            let dtype = indices_dtype;
            let pooled = B::max_pool2d_with_indices(x, kernel_size, stride, padding, dilation, ceil_mode, dtype);
            (pooled.output, pooled.indices)
        });
        MaxPool2dWithIndices::new(output, indices)
    }

    fn max_pool2d_with_indices_backward(
        x: FloatSharded<B>,
        kernel_size: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
        dilation: [usize; 2],
        ceil_mode: bool,
        output_grad: FloatSharded<B>,
        indices: IntSharded<B>,
    ) -> MaxPool2dBackward<Sharded<B>> {
        let rule = || Box::new(Named::new("bc..,bc..,bc..->bc..").linear(&[1])) as _;
        let inputs = (x, output_grad, indices);
        MaxPool2dBackward::new(apply("max_pool2d_with_indices_backward", inputs, rule, |(x, gradient, indices), _| {
            B::max_pool2d_with_indices_backward(x, kernel_size, stride, padding, dilation, ceil_mode, gradient, indices)
                .x_grad
        }))
    }

}

/// Channels in groups belong together: they are not cut.
fn in_groups(named: Named, groups: usize) -> Named {
    if groups == 1 { named } else { named.fixed(b"io") }
}
