//! The operations with burn's fusion: each is a custom operation of the stream, so that what surrounds it is fused as
//! before.
//!
//! An operation names its inputs and the shapes of its outputs, and holds what is run on the inner backend when the
//! stream comes to it.

mod custom;
mod parts;

use std::ops::Range;

use burn::tensor::{DType, Int, Tensor};
use burn_fusion::{Fusion, FusionBackend};

use self::custom::Custom;
use self::parts::{
    NormShape, addend_primitives, next_addends, next_angles, next_attention, next_buffers, next_sums, next_vector_sums,
    norm_primitives, statistics_primitives, sums_primitives,
};
use crate::KernelBackend;
use crate::accumulate::{GradientPlace, GradientSums, VectorSums};
use crate::adamw::{AdamWBuffers, AdamWRanges, AdamWStep};
use crate::bias_gelu::BiasGeluGradients;
use crate::cross_entropy::Statistics;
use crate::embedding::TokenRange;
use crate::error::KernelError;
use crate::flash_attention::{AttentionBackward, AttentionForward, AttentionOptions, AttentionSizes, PackedHeads};
use crate::l2_norm::SquaredPart;
use crate::linear::{self, LinearGradients, LinearInputs, LinearWanted, WeightOrder};
use crate::norm::{AddRule, AddendGradients, Addends, NormAdded, NormGradients, NormParameters, NormStatistics};
use crate::paged_attention::{PagedCache, PagedOptions};
use crate::precision::compute_type;
use crate::ranges::{BufferRange, RangeTarget};
use crate::rotary::{RotaryAngles, RotaryHeads};
use crate::softmax::SoftmaxMask;
use crate::tape::primitive;

impl<B: FusionBackend + KernelBackend> KernelBackend for Fusion<B> {
    fn check_attention(
        device: &Self::Device,
        operation: &'static str,
        dtype: DType,
        sizes: AttentionSizes,
    ) -> Result<(), KernelError> {
        B::check_attention(device, operation, dtype, sizes)
    }

    fn flash_attention_forward(
        inputs: [Tensor<Self, 4>; 3],
        bias: Option<Tensor<Self, 2>>,
        options: &AttentionOptions,
    ) -> AttentionForward<Self> {
        let ([batch, queries, heads, d_head], dtype) = (inputs[0].dims(), inputs[0].dtype());
        let (options, has_bias) = (options.clone(), bias.is_some());
        let mut custom = Custom::<B>::new("flash_attention_forward");
        for input in &inputs {
            custom = custom.with(input);
        }
        let mut outputs = custom
            .with_some(bias.as_ref())
            .output([batch, queries, heads, d_head], dtype)
            .output([batch, heads, queries], compute_type(dtype))
            .register(move |inputs| {
                let tensors = [inputs.next(), inputs.next(), inputs.next()];
                let bias = inputs.next_if(has_bias);
                let forward = B::flash_attention_forward(tensors, bias, &options);
                vec![primitive(forward.output), primitive(forward.log_sum_exp)]
            });
        AttentionForward {
            output: outputs.next(),
            log_sum_exp: outputs.next(),
        }
    }

    fn flash_attention_backward(
        inputs: [Tensor<Self, 4>; 3],
        pass: AttentionBackward<Self>,
        options: &AttentionOptions,
    ) -> ([Tensor<Self, 4>; 3], Option<Tensor<Self, 2>>) {
        let (dtype, options) = (pass.gradient.dtype(), options.clone());
        let mut custom = Custom::<B>::new("flash_attention_backward");
        for input in &inputs {
            custom = custom.with(input).output(input.dims(), dtype);
        }
        let (custom, shape) = custom.with_attention(pass);
        let mut outputs = custom.register(move |inputs| {
            let tensors = [inputs.next(), inputs.next(), inputs.next()];
            let (gradients, of_bias) = B::flash_attention_backward(tensors, next_attention(inputs, shape), &options);
            let of_bias = of_bias.map(primitive);
            gradients.map(primitive).into_iter().chain(of_bias).collect()
        });
        let gradients = [outputs.next(), outputs.next(), outputs.next()];
        (gradients, outputs.next_if(shape.is_bias_wanted))
    }

    fn flash_attention_packed_forward(
        packed: Tensor<Self, 4>,
        heads: PackedHeads,
        bias: Option<Tensor<Self, 2>>,
        options: &AttentionOptions,
    ) -> AttentionForward<Self> {
        let ([batch, seq, _, d_head], dtype) = (packed.dims(), packed.dtype());
        let (options, has_bias) = (options.clone(), bias.is_some());
        let mut outputs = Custom::<B>::new("flash_attention_packed_forward")
            .with_owned(packed)
            .with_some(bias.as_ref())
            .output([batch, seq, heads.queries, d_head], dtype)
            .output([batch, heads.queries, seq], compute_type(dtype))
            .register(move |inputs| {
                let packed = inputs.next();
                let bias = inputs.next_if(has_bias);
                let forward = B::flash_attention_packed_forward(packed, heads, bias, &options);
                vec![primitive(forward.output), primitive(forward.log_sum_exp)]
            });
        AttentionForward {
            output: outputs.next(),
            log_sum_exp: outputs.next(),
        }
    }

    fn flash_attention_packed_backward(
        packed: Tensor<Self, 4>,
        heads: PackedHeads,
        pass: AttentionBackward<Self>,
        options: &AttentionOptions,
    ) -> (Tensor<Self, 4>, Option<Tensor<Self, 2>>) {
        let (dims, dtype) = (packed.dims(), packed.dtype());
        let options = options.clone();
        let custom = Custom::<B>::new("flash_attention_packed_backward")
            .with_owned(packed)
            .output(dims, dtype);
        let (custom, shape) = custom.with_attention(pass);
        let mut outputs = custom.register(move |inputs| {
            let packed = inputs.next();
            let pass = next_attention(inputs, shape);
            let (gradient, of_bias) = B::flash_attention_packed_backward(packed, heads, pass, &options);
            let of_bias = of_bias.map(primitive);
            std::iter::once(primitive(gradient)).chain(of_bias).collect()
        });
        (outputs.next(), outputs.next_if(shape.is_bias_wanted))
    }

    fn paged_attention(
        query: Tensor<Self, 4>,
        cache: PagedCache<Self>,
        options: PagedOptions<Self>,
    ) -> Tensor<Self, 4> {
        let (dims, dtype) = (query.dims(), query.dtype());
        let PagedOptions { scale, slopes, window } = options;
        let has_slopes = slopes.is_some();
        let mut outputs = Custom::<B>::new("paged_attention")
            .with_owned(query)
            .with_owned(cache.keys)
            .with_owned(cache.values)
            .with_int(&cache.block_table)
            .with_int(&cache.lengths)
            .with_some(slopes.as_ref())
            .output(dims, dtype)
            .register(move |inputs| {
                let query = inputs.next();
                let cache = PagedCache {
                    keys: inputs.next(),
                    values: inputs.next(),
                    block_table: inputs.next_int(),
                    lengths: inputs.next_int(),
                };
                let options = PagedOptions {
                    scale,
                    slopes: inputs.next_if(has_slopes),
                    window,
                };
                vec![primitive(B::paged_attention(query, cache, options))]
            });
        outputs.next()
    }

    fn multiply(a: Tensor<Self, 2>, b: Tensor<Self, 2>, bias: Option<Tensor<Self, 1>>) -> Tensor<Self, 2> {
        if !B::multiplies_in_library() {
            return linear::product::multiply(a, b, bias);
        }
        let (dims, dtype, has_bias) = ([a.dims()[0], b.dims()[1]], a.dtype(), bias.is_some());
        let mut outputs = Custom::<B>::new("multiply")
            .with_owned(a)
            .with_owned(b)
            .with_some(bias.as_ref())
            .output(dims, dtype)
            .register(move |inputs| {
                let (a, b) = (inputs.next(), inputs.next());
                vec![primitive(B::multiply(a, b, inputs.next_if(has_bias)))]
            });
        outputs.next()
    }

    fn add_product(
        sums: Tensor<Self, 1>,
        a: Tensor<Self, 2>,
        b: Tensor<Self, 2>,
        place: GradientPlace,
    ) -> Tensor<Self, 1> {
        let (dims, dtype) = (sums.dims(), sums.dtype());
        let mut outputs = Custom::<B>::new("add_product")
            .with_owned(sums)
            .with_owned(a)
            .with_owned(b)
            .output(dims, dtype)
            .register(move |inputs| {
                let sums = inputs.next();
                let (a, b) = (inputs.next(), inputs.next());
                vec![primitive(B::add_product(sums, a, b, place))]
            });
        outputs.next()
    }

    fn multiplies_in_library() -> bool {
        B::multiplies_in_library()
    }

    fn affine(inputs: LinearInputs<Self>) -> Tensor<Self, 2> {
        linear::launch::forward(inputs)
    }

    fn affine_backward(
        input: Tensor<Self, 2>,
        weight: Tensor<Self, 2>,
        order: WeightOrder,
        gradient: Tensor<Self, 2>,
        wanted: LinearWanted,
    ) -> LinearGradients<Self> {
        linear::launch::backward(input, weight, order, gradient, wanted)
    }

    fn scaled_masked_softmax(scores: Tensor<Self, 4>, mask: SoftmaxMask<Self>, scale: f64) -> Tensor<Self, 4> {
        let (dims, dtype) = (scores.dims(), scores.dtype());
        let mut custom = Custom::<B>::new("scaled_masked_softmax").with_owned(scores);
        let is_causal = matches!(mask, SoftmaxMask::Causal);
        let is_given = match mask {
            SoftmaxMask::Given(mask) => {
                custom.inputs.push(mask.into_primitive());
                true
            }
            _ => false,
        };
        let mut outputs = custom.output(dims, dtype).register(move |inputs| {
            let scores = inputs.next();
            let mask = match (is_given, is_causal) {
                (true, _) => SoftmaxMask::Given(inputs.next_bool()),
                (false, true) => SoftmaxMask::Causal,
                (false, false) => SoftmaxMask::Nothing,
            };
            vec![primitive(B::scaled_masked_softmax(scores, mask, scale))]
        });
        outputs.next()
    }

    fn scaled_masked_softmax_backward(
        output: Tensor<Self, 4>,
        gradient: Tensor<Self, 4>,
        scale: f64,
    ) -> Tensor<Self, 4> {
        let (dims, dtype) = (output.dims(), output.dtype());
        let mut outputs = Custom::<B>::new("scaled_masked_softmax_backward")
            .with_owned(output)
            .with_owned(gradient)
            .output(dims, dtype)
            .register(move |inputs| {
                let (output, gradient) = (inputs.next(), inputs.next());
                vec![primitive(B::scaled_masked_softmax_backward(output, gradient, scale))]
            });
        outputs.next()
    }

    fn norm_forward(
        input: Tensor<Self, 2>,
        parameters: &NormParameters<Self>,
    ) -> (Tensor<Self, 2>, NormStatistics<Self>) {
        let ([rows, columns], dtype) = (input.dims(), input.dtype());
        let shape = NormShape::of::<B>(parameters);
        let mut outputs = Custom::<B>::new("norm_forward")
            .with_owned(input)
            .with_norm(parameters)
            .output([rows, columns], dtype)
            .statistics_outputs(shape.kind, rows, dtype)
            .register(move |inputs| {
                let input = inputs.next();
                let (output, statistics) = B::norm_forward(input, &shape.next(inputs));
                [primitive(output)]
                    .into_iter()
                    .chain(statistics_primitives(statistics))
                    .collect()
            });
        (outputs.next(), outputs.next_statistics(shape.kind))
    }

    fn norm_backward(
        input: Tensor<Self, 2>,
        parameters: &NormParameters<Self>,
        statistics: NormStatistics<Self>,
        gradient: Tensor<Self, 2>,
    ) -> NormGradients<Self> {
        let ([rows, columns], dtype) = (input.dims(), input.dtype());
        let shape = NormShape::of::<B>(parameters);
        let mut outputs = Custom::<B>::new("norm_backward")
            .with_owned(input)
            .with_norm(parameters)
            .with_statistics(&statistics)
            .with_owned(gradient)
            .output([rows, columns], dtype)
            .parameter_outputs(shape, columns, dtype)
            .register(move |inputs| {
                let input = inputs.next();
                let parameters = shape.next(inputs);
                let statistics = shape.next_statistics(inputs);
                let gradients = B::norm_backward(input, &parameters, statistics, inputs.next());
                norm_primitives(gradients).collect()
            });
        outputs.next_norm_gradients(shape)
    }

    fn add_norm_forward(
        addends: Addends<Self>,
        parameters: &NormParameters<Self>,
    ) -> ([Tensor<Self, 2>; 2], NormStatistics<Self>) {
        let ([rows, columns], dtype) = (addends.input.dims(), addends.input.dtype());
        let (shape, rule) = (NormShape::of::<B>(parameters), addends.rule());
        let mut outputs = Custom::<B>::new("add_norm_forward")
            .with_addends(&addends)
            .with_norm(parameters)
            .output([rows, columns], dtype)
            .output([rows, columns], dtype)
            .statistics_outputs(shape.kind, rows, dtype)
            .register(move |inputs| {
                let addends = next_addends(inputs, &rule);
                let (outputs, statistics) = B::add_norm_forward(addends, &shape.next(inputs));
                let outputs = outputs.map(primitive).into_iter();
                outputs.chain(statistics_primitives(statistics)).collect()
            });
        let sums = [outputs.next(), outputs.next()];
        (sums, outputs.next_statistics(shape.kind))
    }

    fn add_norm_backward(
        hidden: Tensor<Self, 2>,
        parameters: &NormParameters<Self>,
        statistics: NormStatistics<Self>,
        gradients: [Option<Tensor<Self, 2>>; 2],
        addends: &AddRule,
    ) -> (AddendGradients<Self>, NormGradients<Self>) {
        let ([rows, columns], dtype) = (hidden.dims(), hidden.dtype());
        let (shape, rule) = (NormShape::of::<B>(parameters), addends.clone());
        let is_there = gradients.each_ref().map(Option::is_some);
        let [of_hidden, of_output] = gradients;
        let mut outputs = Custom::<B>::new("add_norm_backward")
            .with_owned(hidden)
            .with_norm(parameters)
            .with_statistics(&statistics)
            .with_some(of_hidden.as_ref())
            .with_some(of_output.as_ref())
            .output([rows, columns], dtype)
            .parameter_outputs(shape, columns, dtype)
            .addend_outputs(addends, [rows, columns], dtype)
            .register(move |inputs| {
                let hidden = inputs.next();
                let parameters = shape.next(inputs);
                let statistics = shape.next_statistics(inputs);
                let gradients = is_there.map(|is_there| inputs.next_if(is_there));
                let (addends, norm) = B::add_norm_backward(hidden, &parameters, statistics, gradients, &rule);
                norm_primitives(norm).chain(addend_primitives(addends)).collect()
            });
        let norm = outputs.next_norm_gradients(shape);
        (outputs.next_addend_gradients(addends), norm)
    }

    fn norm_backward_into(
        hidden: Tensor<Self, 2>,
        parameters: &NormParameters<Self>,
        statistics: NormStatistics<Self>,
        gradients: [Option<Tensor<Self, 2>>; 2],
        addends: Option<&AddRule>,
        to: VectorSums<Self>,
    ) -> NormAdded<Self> {
        let (dims, dtype) = (hidden.dims(), hidden.dtype());
        let (shape, rule) = (NormShape::of::<B>(parameters), addends.cloned());
        let is_there = gradients.each_ref().map(Option::is_some);
        let [of_hidden, of_output] = gradients;
        let has_addend = addends.is_some();
        let mut custom = Custom::<B>::new("norm_backward_into")
            .with_owned(hidden)
            .with_norm(parameters)
            .with_statistics(&statistics)
            .with_some(of_hidden.as_ref())
            .with_some(of_output.as_ref())
            .output(dims, dtype);
        if has_addend {
            custom = custom.output(dims, dtype);
        }
        let (custom, places) = custom.with_vector_sums(to);
        let mut outputs = custom.register(move |inputs| {
            let hidden = inputs.next();
            let parameters = shape.next(inputs);
            let statistics = shape.next_statistics(inputs);
            let gradients = is_there.map(|is_there| inputs.next_if(is_there));
            let to = next_vector_sums(inputs, &places);
            let added = B::norm_backward_into(hidden, &parameters, statistics, gradients, rule.as_ref(), to);
            let of_rows = [added.input].into_iter().chain(added.addend).map(primitive);
            of_rows.chain(sums_primitives(added.sums)).collect()
        });
        NormAdded {
            input: outputs.next(),
            addend: outputs.next_if(has_addend),
            sums: outputs.next_sums(),
        }
    }

    fn bias_dropout_add(addends: Addends<Self>) -> Tensor<Self, 2> {
        let (dims, dtype, rule) = (addends.input.dims(), addends.input.dtype(), addends.rule());
        let mut outputs = Custom::<B>::new("bias_dropout_add")
            .with_addends(&addends)
            .output(dims, dtype)
            .register(move |inputs| vec![primitive(B::bias_dropout_add(next_addends(inputs, &rule)))]);
        outputs.next()
    }

    fn bias_dropout_add_backward(gradient: Tensor<Self, 2>, addends: &AddRule) -> AddendGradients<Self> {
        let (dims, dtype, rule) = (gradient.dims(), gradient.dtype(), addends.clone());
        let mut outputs = Custom::<B>::new("bias_dropout_add_backward")
            .with_owned(gradient)
            .addend_outputs(addends, dims, dtype)
            .register(move |inputs| addend_primitives(B::bias_dropout_add_backward(inputs.next(), &rule)).collect());
        outputs.next_addend_gradients(addends)
    }

    fn bias_dropout_add_backward_into(
        gradient: Tensor<Self, 2>,
        addends: &AddRule,
        to: VectorSums<Self>,
    ) -> (Tensor<Self, 2>, GradientSums<Self>) {
        let (dims, dtype, rule) = (gradient.dims(), gradient.dtype(), addends.clone());
        let (custom, places) = Custom::<B>::new("bias_dropout_add_backward_into")
            .with_owned(gradient)
            .output(dims, dtype)
            .with_vector_sums(to);
        let mut outputs = custom.register(move |inputs| {
            let gradient = inputs.next();
            let to = next_vector_sums(inputs, &places);
            let (input, sums) = B::bias_dropout_add_backward_into(gradient, &rule, to);
            [primitive(input)].into_iter().chain(sums_primitives(sums)).collect()
        });
        (outputs.next(), outputs.next_sums())
    }

    fn bias_gelu(input: Tensor<Self, 2>, bias: Tensor<Self, 1>) -> Tensor<Self, 2> {
        let (dims, dtype) = (input.dims(), input.dtype());
        let mut outputs = Custom::<B>::new("bias_gelu")
            .with_owned(input)
            .with_owned(bias)
            .output(dims, dtype)
            .register(move |inputs| {
                let (input, bias) = (inputs.next(), inputs.next());
                vec![primitive(B::bias_gelu(input, bias))]
            });
        outputs.next()
    }

    fn bias_gelu_backward(
        input: Tensor<Self, 2>,
        bias: Tensor<Self, 1>,
        gradient: Tensor<Self, 2>,
    ) -> BiasGeluGradients<Self> {
        let (dims, dtype) = (input.dims(), input.dtype());
        let mut outputs = Custom::<B>::new("bias_gelu_backward")
            .with_owned(input)
            .with_owned(bias)
            .with_owned(gradient)
            .output(dims, dtype)
            .output([dims[1]], dtype)
            .register(move |inputs| {
                let (input, bias, gradient) = (inputs.next(), inputs.next(), inputs.next());
                let gradients = B::bias_gelu_backward(input, bias, gradient);
                vec![primitive(gradients.input), primitive(gradients.bias)]
            });
        BiasGeluGradients {
            input: outputs.next(),
            bias: outputs.next(),
        }
    }

    fn bias_gelu_backward_into(
        input: Tensor<Self, 2>,
        bias: Tensor<Self, 1>,
        gradient: Tensor<Self, 2>,
        to: VectorSums<Self>,
    ) -> (Tensor<Self, 2>, GradientSums<Self>) {
        let (dims, dtype) = (input.dims(), input.dtype());
        let (custom, places) = Custom::<B>::new("bias_gelu_backward_into")
            .with_owned(input)
            .with_owned(bias)
            .with_owned(gradient)
            .output(dims, dtype)
            .with_vector_sums(to);
        let mut outputs = custom.register(move |inputs| {
            let (input, bias, gradient) = (inputs.next(), inputs.next(), inputs.next());
            let to = next_vector_sums(inputs, &places);
            let (input, sums) = B::bias_gelu_backward_into(input, bias, gradient, to);
            [primitive(input)].into_iter().chain(sums_primitives(sums)).collect()
        });
        (outputs.next(), outputs.next_sums())
    }

    fn swiglu(input: Tensor<Self, 2>) -> Tensor<Self, 2> {
        let ([rows, columns], dtype) = (input.dims(), input.dtype());
        let mut outputs = Custom::<B>::new("swiglu")
            .with_owned(input)
            .output([rows, columns / 2], dtype)
            .register(move |inputs| vec![primitive(B::swiglu(inputs.next()))]);
        outputs.next()
    }

    fn swiglu_backward(input: Tensor<Self, 2>, gradient: Tensor<Self, 2>) -> Tensor<Self, 2> {
        let (dims, dtype) = (input.dims(), input.dtype());
        let mut outputs = Custom::<B>::new("swiglu_backward")
            .with_owned(input)
            .with_owned(gradient)
            .output(dims, dtype)
            .register(move |inputs| {
                let (input, gradient) = (inputs.next(), inputs.next());
                vec![primitive(B::swiglu_backward(input, gradient))]
            });
        outputs.next()
    }

    fn rotary(input: Tensor<Self, 4>, angles: Option<RotaryAngles<Self>>) -> Tensor<Self, 3> {
        let (dims @ [tokens, _, _, d_head], dtype) = (input.dims(), input.dtype());
        let (custom, layout) = Custom::<B>::new("rotary").with_owned(input).with_angles(angles);
        let mut outputs = custom
            .output([tokens, RotaryHeads::of(dims).total(), d_head], dtype)
            .register(move |inputs| {
                let input = inputs.next();
                vec![primitive(B::rotary(input, next_angles(inputs, layout)))]
            });
        outputs.next()
    }

    fn rotary_backward(
        gradient: Tensor<Self, 3>,
        heads: RotaryHeads,
        angles: Option<RotaryAngles<Self>>,
    ) -> Tensor<Self, 4> {
        let ([tokens, _, d_head], dtype) = (gradient.dims(), gradient.dtype());
        let (custom, layout) = Custom::<B>::new("rotary_backward")
            .with_owned(gradient)
            .with_angles(angles);
        let mut outputs = custom
            .output([tokens, heads.groups, heads.queries + 2, d_head], dtype)
            .register(move |inputs| {
                let gradient = inputs.next();
                vec![primitive(B::rotary_backward(
                    gradient,
                    heads,
                    next_angles(inputs, layout),
                ))]
            });
        outputs.next()
    }

    fn cross_entropy_statistics(
        logits: Tensor<Self, 2>,
        targets: Tensor<Self, 1, Int>,
        valid: usize,
    ) -> Statistics<Self> {
        let (rows, dtype) = (logits.dims()[0], compute_type(logits.dtype()));
        let mut outputs = Custom::<B>::new("cross_entropy_statistics")
            .with_owned(logits)
            .with_int(&targets)
            .output([rows], dtype)
            .output([rows], dtype)
            .output([rows], dtype)
            .register(move |inputs| {
                let (logits, targets) = (inputs.next(), inputs.next_int());
                let statistics = B::cross_entropy_statistics(logits, targets, valid);
                [statistics.maximum, statistics.sum, statistics.target]
                    .map(primitive)
                    .to_vec()
            });
        Statistics {
            maximum: outputs.next(),
            sum: outputs.next(),
            target: outputs.next(),
        }
    }

    fn cross_entropy_backward(
        logits: Tensor<Self, 2>,
        targets: Tensor<Self, 1, Int>,
        valid: usize,
        whole: Statistics<Self>,
        gradient: Tensor<Self, 1>,
    ) -> Tensor<Self, 2> {
        let (dims, dtype) = (logits.dims(), logits.dtype());
        let mut outputs = Custom::<B>::new("cross_entropy_backward")
            .with_owned(logits)
            .with_int(&targets)
            .with_owned(whole.maximum)
            .with_owned(whole.sum)
            .with_owned(whole.target)
            .with_owned(gradient)
            .output(dims, dtype)
            .register(move |inputs| {
                let (logits, targets) = (inputs.next(), inputs.next_int());
                let whole = Statistics {
                    maximum: inputs.next(),
                    sum: inputs.next(),
                    target: inputs.next(),
                };
                let gradient = inputs.next();
                vec![primitive(B::cross_entropy_backward(
                    logits, targets, valid, whole, gradient,
                ))]
            });
        outputs.next()
    }

    fn embedding_rows(table: Tensor<Self, 2>, tokens: Tensor<Self, 1, Int>, range: TokenRange) -> Tensor<Self, 2> {
        let (dims, dtype) = ([tokens.dims()[0], table.dims()[1]], table.dtype());
        let mut outputs = Custom::<B>::new("embedding")
            .with_owned(table)
            .with_int(&tokens)
            .output(dims, dtype)
            .register(move |inputs| {
                let table = inputs.next();
                vec![primitive(B::embedding_rows(table, inputs.next_int(), range))]
            });
        outputs.next()
    }

    fn add_rows(
        sums: Tensor<Self, 1>,
        offset: usize,
        tokens: Tensor<Self, 1, Int>,
        gradient: Tensor<Self, 2>,
        range: TokenRange,
    ) -> Tensor<Self, 1> {
        let (dims, dtype) = (sums.dims(), sums.dtype());
        let mut outputs = Custom::<B>::new("add_rows")
            .with_owned(sums)
            .with_int(&tokens)
            .with_owned(gradient)
            .output(dims, dtype)
            .register(move |inputs| {
                let (sums, tokens) = (inputs.next(), inputs.next_int());
                vec![primitive(B::add_rows(sums, offset, tokens, inputs.next(), range))]
            });
        outputs.next()
    }

    fn accumulate(sums: GradientSums<Self>, gradient: Tensor<Self, 1>, place: GradientPlace) -> GradientSums<Self> {
        let mut outputs = Custom::<B>::new("accumulate")
            .with_sums(sums)
            .with_owned(gradient)
            .register(move |inputs| {
                let sums = next_sums(inputs);
                sums_primitives(B::accumulate(sums, inputs.next(), place)).collect()
            });
        outputs.next_sums()
    }

    fn adamw(
        buffers: AdamWBuffers<Self>,
        gradient: Tensor<Self, 1>,
        step: &AdamWStep,
        copy: Option<DType>,
    ) -> (AdamWBuffers<Self>, Option<Tensor<Self, 1>>) {
        let (dims, step) = (buffers.parameter.dims(), *step);
        let mut custom = Custom::<B>::new("adamw").with_buffers(buffers);
        if let Some(copy) = copy {
            custom = custom.output(dims, copy);
        }
        let mut outputs = custom.with_owned(gradient).register(move |inputs| {
            let buffers = next_buffers(inputs);
            let (buffers, copy) = B::adamw(buffers, inputs.next(), &step, copy);
            let buffers = buffers.into_array().map(primitive);
            buffers.into_iter().chain(copy.map(primitive)).collect()
        });
        (outputs.next_buffers(), outputs.next_if(copy.is_some()))
    }

    fn adamw_ranges(
        buffers: AdamWBuffers<Self>,
        gradient: Tensor<Self, 1>,
        steps: &[AdamWRanges],
        copy: DType,
    ) -> (AdamWBuffers<Self>, Tensor<Self, 1>) {
        let (dims, steps) = (buffers.parameter.dims(), steps.to_vec());
        let custom = Custom::<B>::new("adamw_ranges").with_buffers(buffers);
        let custom = custom.output(dims, copy).with_owned(gradient);
        let mut outputs = custom.register(move |inputs| {
            let buffers = next_buffers(inputs);
            let (buffers, copy) = B::adamw_ranges(buffers, inputs.next(), &steps, copy);
            let buffers = buffers.into_array().map(primitive);
            buffers.into_iter().chain([primitive(copy)]).collect()
        });
        (outputs.next_buffers(), outputs.next())
    }

    fn gather_ranges(buffers: Vec<Tensor<Self, 1>>, ranges: &[BufferRange]) -> Tensor<Self, 1> {
        let (count, dtype) = (buffers.len(), buffers[0].dtype());
        let length = ranges.iter().map(|range| range.range.len()).sum::<usize>();
        let ranges = ranges.to_vec();
        let mut custom = Custom::<B>::new("gather_ranges");
        for buffer in buffers {
            custom = custom.with_owned(buffer);
        }
        let mut outputs = custom.output([length], dtype).register(move |inputs| {
            let buffers = (0..count).map(|_| inputs.next()).collect();
            vec![primitive(B::gather_ranges(buffers, &ranges))]
        });
        outputs.next()
    }

    fn scatter_ranges(buffer: Tensor<Self, 1>, values: Tensor<Self, 1>, targets: &[RangeTarget]) -> Tensor<Self, 1> {
        let (dims, dtype, targets) = (buffer.dims(), buffer.dtype(), targets.to_vec());
        let mut outputs = Custom::<B>::new("scatter_ranges")
            .with_owned(buffer)
            .with_owned(values)
            .output(dims, dtype)
            .register(move |inputs| {
                let buffer = inputs.next();
                vec![primitive(B::scatter_ranges(buffer, inputs.next(), &targets))]
            });
        outputs.next()
    }

    fn clear_ranges(buffer: Tensor<Self, 1>, ranges: &[Range<usize>]) -> Tensor<Self, 1> {
        let (dims, dtype, ranges) = (buffer.dims(), buffer.dtype(), ranges.to_vec());
        let mut outputs = Custom::<B>::new("clear_ranges")
            .with_owned(buffer)
            .output(dims, dtype)
            .register(move |inputs| vec![primitive(B::clear_ranges(inputs.next(), &ranges))]);
        outputs.next()
    }

    fn sums_of_squares(buffers: Vec<Tensor<Self, 1>>, parts: &[SquaredPart], sums: usize) -> Tensor<Self, 1> {
        let (count, dtype) = (buffers.len(), compute_type(buffers[0].dtype()));
        let parts = parts.to_vec();
        let mut custom = Custom::<B>::new("sums_of_squares");
        for buffer in buffers {
            custom = custom.with_owned(buffer);
        }
        let mut outputs = custom.output([sums], dtype).register(move |inputs| {
            let buffers = (0..count).map(|_| inputs.next()).collect();
            vec![primitive(B::sums_of_squares(buffers, &parts, sums))]
        });
        outputs.next()
    }
}
