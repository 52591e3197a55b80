//! The operations on burn's CPU backend: vectorised, in parallel.

use std::ops::Range;

use burn::tensor::{DType, Int, Tensor};
use burn_flex::Flex;

use crate::KernelBackend;
use crate::adamw::{self, AdamWBuffers, AdamWStep};
use crate::bias_dropout_add;
use crate::bias_gelu::{self, BiasGeluGradients};
use crate::cross_entropy::{self, Statistics};
use crate::embedding::{self, TokenRange};
use crate::flash_attention::{self, AttentionBackward, AttentionForward, AttentionOptions, PackedHeads};
use crate::l2_norm::{self, SquaredPart};
use crate::linear::{self, LinearGradients, LinearInputs, LinearWanted, WeightOrder};
use crate::norm::{self, AddRule, AddendGradients, Addends, NormGradients, NormParameters, NormStatistics};
use crate::ranges::{self, RangeTarget};
use crate::rotary::{self, RotaryAngles, RotaryHeads};
use crate::softmax::{self, SoftmaxMask};
use crate::swiglu;

impl KernelBackend for Flex {
    fn scaled_masked_softmax(scores: Tensor<Self, 4>, mask: SoftmaxMask<Self>, scale: f64) -> Tensor<Self, 4> {
        softmax::flex::forward(scores, mask, scale)
    }

    fn scaled_masked_softmax_backward(
        output: Tensor<Self, 4>,
        gradient: Tensor<Self, 4>,
        scale: f64,
    ) -> Tensor<Self, 4> {
        softmax::flex::backward(output, gradient, scale)
    }

    fn norm_forward(
        input: Tensor<Self, 2>,
        parameters: &NormParameters<Self>,
    ) -> (Tensor<Self, 2>, NormStatistics<Self>) {
        norm::flex::forward(input, parameters)
    }

    fn norm_backward(
        input: Tensor<Self, 2>,
        parameters: &NormParameters<Self>,
        statistics: NormStatistics<Self>,
        gradient: Tensor<Self, 2>,
    ) -> NormGradients<Self> {
        norm::flex::backward(input, parameters, statistics, gradient)
    }

    fn add_norm_forward(
        addends: Addends<Self>,
        parameters: &NormParameters<Self>,
    ) -> ([Tensor<Self, 2>; 2], NormStatistics<Self>) {
        norm::flex::add_forward(addends, parameters)
    }

    fn add_norm_backward(
        hidden: Tensor<Self, 2>,
        parameters: &NormParameters<Self>,
        statistics: NormStatistics<Self>,
        gradients: [Option<Tensor<Self, 2>>; 2],
        addends: &AddRule,
    ) -> (AddendGradients<Self>, NormGradients<Self>) {
        norm::flex::add_backward(hidden, parameters, statistics, gradients, addends)
    }

    fn bias_dropout_add(addends: Addends<Self>) -> Tensor<Self, 2> {
        bias_dropout_add::flex::forward(addends)
    }

    fn bias_dropout_add_backward(gradient: Tensor<Self, 2>, addends: &AddRule) -> AddendGradients<Self> {
        bias_dropout_add::flex::backward(gradient, addends)
    }

    fn bias_gelu(input: Tensor<Self, 2>, bias: Tensor<Self, 1>) -> Tensor<Self, 2> {
        bias_gelu::flex::forward(input, bias)
    }

    fn bias_gelu_backward(
        input: Tensor<Self, 2>,
        bias: Tensor<Self, 1>,
        gradient: Tensor<Self, 2>,
    ) -> BiasGeluGradients<Self> {
        bias_gelu::flex::backward(input, bias, gradient)
    }

    fn swiglu(input: Tensor<Self, 2>) -> Tensor<Self, 2> {
        swiglu::flex::forward(input)
    }

    fn swiglu_backward(input: Tensor<Self, 2>, gradient: Tensor<Self, 2>) -> Tensor<Self, 2> {
        swiglu::flex::backward(input, gradient)
    }

    fn rotary(input: Tensor<Self, 4>, angles: Option<RotaryAngles<Self>>) -> Tensor<Self, 3> {
        rotary::flex::forward(input, angles)
    }

    fn rotary_backward(
        gradient: Tensor<Self, 3>,
        heads: RotaryHeads,
        angles: Option<RotaryAngles<Self>>,
    ) -> Tensor<Self, 4> {
        rotary::flex::backward(gradient, heads, angles)
    }

    fn cross_entropy_statistics(
        logits: Tensor<Self, 2>,
        targets: Tensor<Self, 1, Int>,
        valid: usize,
    ) -> Statistics<Self> {
        cross_entropy::flex::statistics(logits, targets, valid)
    }

    fn cross_entropy_backward(
        logits: Tensor<Self, 2>,
        targets: Tensor<Self, 1, Int>,
        valid: usize,
        whole: Statistics<Self>,
        gradient: Tensor<Self, 1>,
    ) -> Tensor<Self, 2> {
        cross_entropy::flex::backward(logits, targets, valid, whole, gradient)
    }

    fn embedding_rows(table: Tensor<Self, 2>, tokens: Tensor<Self, 1, Int>, range: TokenRange) -> Tensor<Self, 2> {
        embedding::flex::forward(table, tokens, range)
    }

    fn add_rows(
        sums: Tensor<Self, 1>,
        offset: usize,
        tokens: Tensor<Self, 1, Int>,
        gradient: Tensor<Self, 2>,
        range: TokenRange,
    ) -> Tensor<Self, 1> {
        embedding::flex::add_rows(sums, offset, tokens, gradient, range)
    }

    fn adamw(
        buffers: AdamWBuffers<Self>,
        gradient: Tensor<Self, 1>,
        step: &AdamWStep,
        copy: Option<DType>,
    ) -> (AdamWBuffers<Self>, Option<Tensor<Self, 1>>) {
        adamw::flex::step(buffers, gradient, step, copy)
    }

    fn scatter_ranges(buffer: Tensor<Self, 1>, values: Tensor<Self, 1>, targets: &[RangeTarget]) -> Tensor<Self, 1> {
        ranges::flex::scatter(buffer, values, targets)
    }

    fn clear_ranges(buffer: Tensor<Self, 1>, ranges: &[Range<usize>]) -> Tensor<Self, 1> {
        ranges::flex::clear(buffer, ranges)
    }

    fn sums_of_squares(buffers: Vec<Tensor<Self, 1>>, parts: &[SquaredPart], sums: usize) -> Tensor<Self, 1> {
        l2_norm::flex::sums_of_squares(buffers, parts, sums)
    }

    fn flash_attention_forward(
        inputs: [Tensor<Self, 4>; 3],
        bias: Option<Tensor<Self, 2>>,
        options: &AttentionOptions,
    ) -> AttentionForward<Self> {
        flash_attention::flex::forward(inputs, bias, options)
    }

    fn flash_attention_backward(
        inputs: [Tensor<Self, 4>; 3],
        pass: AttentionBackward<Self>,
        options: &AttentionOptions,
    ) -> ([Tensor<Self, 4>; 3], Option<Tensor<Self, 2>>) {
        flash_attention::flex::backward(inputs, pass, options)
    }

    fn flash_attention_packed_backward(
        packed: Tensor<Self, 4>,
        heads: PackedHeads,
        pass: AttentionBackward<Self>,
        options: &AttentionOptions,
    ) -> (Tensor<Self, 4>, Option<Tensor<Self, 2>>) {
        flash_attention::flex::packed_backward(packed, heads, pass, options)
    }

    fn affine(inputs: LinearInputs<Self>) -> Tensor<Self, 2> {
        linear::flex::forward(inputs)
    }

    fn affine_backward(
        input: Tensor<Self, 2>,
        weight: Tensor<Self, 2>,
        order: WeightOrder,
        gradient: Tensor<Self, 2>,
        wanted: LinearWanted,
    ) -> LinearGradients<Self> {
        linear::flex::backward(input, weight, order, gradient, wanted)
    }
}
