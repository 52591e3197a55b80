//! The operations with burn's fusion: each is a custom operation of the stream, so that what surrounds it is fused as
//! before.
//!
//! An operation [registers](register) its arguments, the shapes of its results, and what is run on the inner backend
//! when the stream comes to it.

mod arguments;
mod custom;
mod inputs;
mod results;

use std::ops::Range;

use burn::tensor::{DType, Int, Tensor};
use burn_fusion::{Fusion, FusionBackend};

use self::custom::register;
use self::results::{
    AdamWShapes, AddendShapes, BiasGeluShapes, ForwardShapes, NormAddedShapes, NormShapes, NormStatisticsShapes,
    Output, StatisticsShapes, SumsShapes, bias_gradient,
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
        let [batch, queries, heads, _] = inputs[0].dims();
        let results = ForwardShapes::of(Output::like(&inputs[0]), [batch, heads, queries]);
        let options = options.clone();
        let run = move |(inputs, bias)| B::flash_attention_forward(inputs, bias, &options);
        register("flash_attention_forward", (inputs, bias), results, run)
    }

    fn flash_attention_backward(
        inputs: [Tensor<Self, 4>; 3],
        pass: AttentionBackward<Self>,
        options: &AttentionOptions,
    ) -> ([Tensor<Self, 4>; 3], Option<Tensor<Self, 2>>) {
        let results = (inputs.each_ref().map(Output::like), bias_gradient(&pass));
        let options = options.clone();
        let run = move |(inputs, pass)| B::flash_attention_backward(inputs, pass, &options);
        register("flash_attention_backward", (inputs, pass), results, run)
    }

    fn flash_attention_packed_forward(
        packed: Tensor<Self, 4>,
        heads: PackedHeads,
        bias: Option<Tensor<Self, 2>>,
        options: &AttentionOptions,
    ) -> AttentionForward<Self> {
        let ([batch, seq, _, d_head], dtype) = (packed.dims(), packed.dtype());
        let output = Output([batch, seq, heads.queries, d_head], dtype);
        let results = ForwardShapes::of(output, [batch, heads.queries, seq]);
        let options = options.clone();
        let run = move |(packed, bias)| B::flash_attention_packed_forward(packed, heads, bias, &options);
        register("flash_attention_packed_forward", (packed, bias), results, run)
    }

    fn flash_attention_packed_backward(
        packed: Tensor<Self, 4>,
        heads: PackedHeads,
        pass: AttentionBackward<Self>,
        options: &AttentionOptions,
    ) -> (Tensor<Self, 4>, Option<Tensor<Self, 2>>) {
        let results = (Output::like(&packed), bias_gradient(&pass));
        let options = options.clone();
        let run = move |(packed, pass)| B::flash_attention_packed_backward(packed, heads, pass, &options);
        register("flash_attention_packed_backward", (packed, pass), results, run)
    }

    fn paged_attention(
        query: Tensor<Self, 4>,
        cache: PagedCache<Self>,
        options: PagedOptions<Self>,
    ) -> Tensor<Self, 4> {
        let output = Output::like(&query);
        let run = |(query, cache, options)| B::paged_attention(query, cache, options);
        register("paged_attention", (query, cache, options), output, run)
    }

    fn multiply(a: Tensor<Self, 2>, b: Tensor<Self, 2>, bias: Option<Tensor<Self, 1>>) -> Tensor<Self, 2> {
        if !B::multiplies_in_library() {
            return linear::product::multiply(a, b, bias);
        }
        let output = Output([a.dims()[0], b.dims()[1]], a.dtype());
        register("multiply", (a, b, bias), output, |(a, b, bias)| B::multiply(a, b, bias))
    }

    fn add_product(
        sums: Tensor<Self, 1>,
        a: Tensor<Self, 2>,
        b: Tensor<Self, 2>,
        place: GradientPlace,
    ) -> Tensor<Self, 1> {
        let output = Output::like(&sums);
        let run = move |(sums, a, b)| B::add_product(sums, a, b, place);
        register("add_product", (sums, a, b), output, run)
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
        let (output, is_causal) = (Output::like(&scores), matches!(mask, SoftmaxMask::Causal));
        let given = match mask {
            SoftmaxMask::Given(mask) => Some(mask),
            SoftmaxMask::Causal | SoftmaxMask::Nothing => None,
        };
        register(
            "scaled_masked_softmax",
            (scores, given),
            output,
            move |(scores, given)| {
                let mask = match given {
                    Some(mask) => SoftmaxMask::Given(mask),
                    None if is_causal => SoftmaxMask::Causal,
                    None => SoftmaxMask::Nothing,
                };
                B::scaled_masked_softmax(scores, mask, scale)
            },
        )
    }

    fn scaled_masked_softmax_backward(
        output: Tensor<Self, 4>,
        gradient: Tensor<Self, 4>,
        scale: f64,
    ) -> Tensor<Self, 4> {
        let result = Output::like(&output);
        let run = move |(output, gradient)| B::scaled_masked_softmax_backward(output, gradient, scale);
        register("scaled_masked_softmax_backward", (output, gradient), result, run)
    }

    fn norm_forward(
        input: Tensor<Self, 2>,
        parameters: &NormParameters<Self>,
    ) -> (Tensor<Self, 2>, NormStatistics<Self>) {
        let (rows, parameters) = (Output::like(&input), parameters.clone());
        let results = (rows, NormStatisticsShapes::of(parameters.kind, rows));
        let run = |(input, parameters)| B::norm_forward(input, &parameters);
        register("norm_forward", (input, parameters), results, run)
    }

    fn norm_backward(
        input: Tensor<Self, 2>,
        parameters: &NormParameters<Self>,
        statistics: NormStatistics<Self>,
        gradient: Tensor<Self, 2>,
    ) -> NormGradients<Self> {
        let results = NormShapes::of(Output::like(&input), parameters);
        let arguments = (input, parameters.clone(), statistics, gradient);
        let run =
            |(input, parameters, statistics, gradient)| B::norm_backward(input, &parameters, statistics, gradient);
        register("norm_backward", arguments, results, run)
    }

    fn add_norm_forward(
        addends: Addends<Self>,
        parameters: &NormParameters<Self>,
    ) -> ([Tensor<Self, 2>; 2], NormStatistics<Self>) {
        let (rows, parameters) = (Output::like(&addends.input), parameters.clone());
        let results = ([rows; 2], NormStatisticsShapes::of(parameters.kind, rows));
        let run = |(addends, parameters)| B::add_norm_forward(addends, &parameters);
        register("add_norm_forward", (addends, parameters), results, run)
    }

    fn add_norm_backward(
        hidden: Tensor<Self, 2>,
        parameters: &NormParameters<Self>,
        statistics: NormStatistics<Self>,
        gradients: [Option<Tensor<Self, 2>>; 2],
        addends: &AddRule,
    ) -> (AddendGradients<Self>, NormGradients<Self>) {
        let (rows, rule) = (Output::like(&hidden), addends.clone());
        let results = (AddendShapes::of(rows, addends), NormShapes::of(rows, parameters));
        let arguments = (hidden, parameters.clone(), statistics, gradients);
        register("add_norm_backward", arguments, results, move |arguments| {
            let (hidden, parameters, statistics, gradients) = arguments;
            B::add_norm_backward(hidden, &parameters, statistics, gradients, &rule)
        })
    }

    fn norm_backward_into(
        hidden: Tensor<Self, 2>,
        parameters: &NormParameters<Self>,
        statistics: NormStatistics<Self>,
        gradients: [Option<Tensor<Self, 2>>; 2],
        addends: Option<&AddRule>,
        to: VectorSums<Self>,
    ) -> NormAdded<Self> {
        let (rows, rule) = (Output::like(&hidden), addends.cloned());
        let results = NormAddedShapes {
            input: rows,
            addend: addends.map(|_| rows),
            sums: SumsShapes::like(&to.sums),
        };
        let arguments = (hidden, parameters.clone(), statistics, gradients, to);
        register("norm_backward_into", arguments, results, move |arguments| {
            let (hidden, parameters, statistics, gradients, to) = arguments;
            B::norm_backward_into(hidden, &parameters, statistics, gradients, rule.as_ref(), to)
        })
    }

    fn bias_dropout_add(addends: Addends<Self>) -> Tensor<Self, 2> {
        let output = Output::like(&addends.input);
        register("bias_dropout_add", addends, output, B::bias_dropout_add)
    }

    fn bias_dropout_add_backward(gradient: Tensor<Self, 2>, addends: &AddRule) -> AddendGradients<Self> {
        let results = AddendShapes::of(Output::like(&gradient), addends);
        let rule = addends.clone();
        let run = move |gradient| B::bias_dropout_add_backward(gradient, &rule);
        register("bias_dropout_add_backward", gradient, results, run)
    }

    fn bias_dropout_add_backward_into(
        gradient: Tensor<Self, 2>,
        addends: &AddRule,
        to: VectorSums<Self>,
    ) -> (Tensor<Self, 2>, GradientSums<Self>) {
        let results = (Output::like(&gradient), SumsShapes::like(&to.sums));
        let rule = addends.clone();
        let run = move |(gradient, to)| B::bias_dropout_add_backward_into(gradient, &rule, to);
        register("bias_dropout_add_backward_into", (gradient, to), results, run)
    }

    fn bias_gelu(input: Tensor<Self, 2>, bias: Tensor<Self, 1>) -> Tensor<Self, 2> {
        let output = Output::like(&input);
        let run = |(input, bias)| B::bias_gelu(input, bias);
        register("bias_gelu", (input, bias), output, run)
    }

    fn bias_gelu_backward(
        input: Tensor<Self, 2>,
        bias: Tensor<Self, 1>,
        gradient: Tensor<Self, 2>,
    ) -> BiasGeluGradients<Self> {
        let results = BiasGeluShapes {
            input: Output::like(&input),
            bias: Output::like(&bias),
        };
        let run = |(input, bias, gradient)| B::bias_gelu_backward(input, bias, gradient);
        register("bias_gelu_backward", (input, bias, gradient), results, run)
    }

    fn bias_gelu_backward_into(
        input: Tensor<Self, 2>,
        bias: Tensor<Self, 1>,
        gradient: Tensor<Self, 2>,
        to: VectorSums<Self>,
    ) -> (Tensor<Self, 2>, GradientSums<Self>) {
        let results = (Output::like(&input), SumsShapes::like(&to.sums));
        let run = |(input, bias, gradient, to)| B::bias_gelu_backward_into(input, bias, gradient, to);
        register("bias_gelu_backward_into", (input, bias, gradient, to), results, run)
    }

    fn swiglu(input: Tensor<Self, 2>) -> Tensor<Self, 2> {
        let [rows, columns] = input.dims();
        let output = Output([rows, columns / 2], input.dtype());
        register("swiglu", input, output, B::swiglu)
    }

    fn swiglu_backward(input: Tensor<Self, 2>, gradient: Tensor<Self, 2>) -> Tensor<Self, 2> {
        let result = Output::like(&input);
        let run = |(input, gradient)| B::swiglu_backward(input, gradient);
        register("swiglu_backward", (input, gradient), result, run)
    }

    fn rotary(input: Tensor<Self, 4>, angles: Option<RotaryAngles<Self>>) -> Tensor<Self, 3> {
        let (dims @ [tokens, _, _, d_head], dtype) = (input.dims(), input.dtype());
        let output = Output([tokens, RotaryHeads::of(dims).total(), d_head], dtype);
        register("rotary", (input, angles), output, |(input, angles)| {
            B::rotary(input, angles)
        })
    }

    fn rotary_backward(
        gradient: Tensor<Self, 3>,
        heads: RotaryHeads,
        angles: Option<RotaryAngles<Self>>,
    ) -> Tensor<Self, 4> {
        let ([tokens, _, d_head], dtype) = (gradient.dims(), gradient.dtype());
        let result = Output([tokens, heads.groups, heads.queries + 2, d_head], dtype);
        let run = move |(gradient, angles)| B::rotary_backward(gradient, heads, angles);
        register("rotary_backward", (gradient, angles), result, run)
    }

    fn cross_entropy_statistics(
        logits: Tensor<Self, 2>,
        targets: Tensor<Self, 1, Int>,
        valid: usize,
    ) -> Statistics<Self> {
        let of_rows = Output([logits.dims()[0]], compute_type(logits.dtype()));
        let results = StatisticsShapes {
            maximum: of_rows,
            sum: of_rows,
            target: of_rows,
        };
        let run = move |(logits, targets)| B::cross_entropy_statistics(logits, targets, valid);
        register("cross_entropy_statistics", (logits, targets), results, run)
    }

    fn cross_entropy_backward(
        logits: Tensor<Self, 2>,
        targets: Tensor<Self, 1, Int>,
        valid: usize,
        whole: Statistics<Self>,
        gradient: Tensor<Self, 1>,
    ) -> Tensor<Self, 2> {
        let result = Output::like(&logits);
        let arguments = (logits, targets, whole, gradient);
        register("cross_entropy_backward", arguments, result, move |arguments| {
            let (logits, targets, whole, gradient) = arguments;
            B::cross_entropy_backward(logits, targets, valid, whole, gradient)
        })
    }

    fn embedding_rows(table: Tensor<Self, 2>, tokens: Tensor<Self, 1, Int>, range: TokenRange) -> Tensor<Self, 2> {
        let output = Output([tokens.dims()[0], table.dims()[1]], table.dtype());
        let run = move |(table, tokens)| B::embedding_rows(table, tokens, range);
        register("embedding", (table, tokens), output, run)
    }

    fn add_rows(
        sums: Tensor<Self, 1>,
        offset: usize,
        tokens: Tensor<Self, 1, Int>,
        gradient: Tensor<Self, 2>,
        range: TokenRange,
    ) -> Tensor<Self, 1> {
        let output = Output::like(&sums);
        let run = move |(sums, tokens, gradient)| B::add_rows(sums, offset, tokens, gradient, range);
        register("add_rows", (sums, tokens, gradient), output, run)
    }

    fn accumulate(sums: GradientSums<Self>, gradient: Tensor<Self, 1>, place: GradientPlace) -> GradientSums<Self> {
        let results = SumsShapes::like(&sums);
        let run = move |(sums, gradient)| B::accumulate(sums, gradient, place);
        register("accumulate", (sums, gradient), results, run)
    }

    fn adamw(
        buffers: AdamWBuffers<Self>,
        gradient: Tensor<Self, 1>,
        step: &AdamWStep,
        copy: Option<DType>,
    ) -> (AdamWBuffers<Self>, Option<Tensor<Self, 1>>) {
        let copied = copy.map(|copy| Output(gradient.dims(), copy));
        let (results, step) = ((AdamWShapes::like(&buffers), copied), *step);
        let run = move |(buffers, gradient)| B::adamw(buffers, gradient, &step, copy);
        register("adamw", (buffers, gradient), results, run)
    }

    fn adamw_ranges(
        buffers: AdamWBuffers<Self>,
        gradient: Tensor<Self, 1>,
        steps: &[AdamWRanges],
        copy: DType,
    ) -> (AdamWBuffers<Self>, Tensor<Self, 1>) {
        let results = (AdamWShapes::like(&buffers), Output(gradient.dims(), copy));
        let steps = steps.to_vec();
        let run = move |(buffers, gradient)| B::adamw_ranges(buffers, gradient, &steps, copy);
        register("adamw_ranges", (buffers, gradient), results, run)
    }

    fn gather_ranges(buffers: Vec<Tensor<Self, 1>>, ranges: &[BufferRange]) -> Tensor<Self, 1> {
        let length = ranges.iter().map(|range| range.range.len()).sum();
        let (output, ranges) = (Output([length], buffers[0].dtype()), ranges.to_vec());
        let run = move |buffers| B::gather_ranges(buffers, &ranges);
        register("gather_ranges", buffers, output, run)
    }

    fn scatter_ranges(buffer: Tensor<Self, 1>, values: Tensor<Self, 1>, targets: &[RangeTarget]) -> Tensor<Self, 1> {
        let (output, targets) = (Output::like(&buffer), targets.to_vec());
        let run = move |(buffer, values)| B::scatter_ranges(buffer, values, &targets);
        register("scatter_ranges", (buffer, values), output, run)
    }

    fn clear_ranges(buffer: Tensor<Self, 1>, ranges: &[Range<usize>]) -> Tensor<Self, 1> {
        let (output, ranges) = (Output::like(&buffer), ranges.to_vec());
        let run = move |buffer| B::clear_ranges(buffer, &ranges);
        register("clear_ranges", buffer, output, run)
    }

    fn sums_of_squares(buffers: Vec<Tensor<Self, 1>>, parts: &[SquaredPart], sums: usize) -> Tensor<Self, 1> {
        let output = Output([sums], compute_type(buffers[0].dtype()));
        let parts = parts.to_vec();
        let run = move |buffers| B::sums_of_squares(buffers, &parts, sums);
        register("sums_of_squares", buffers, output, run)
    }
}
