//! The operations for autodiff: each a node of the graph that keeps the least and has a backward rule of its own.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::{DType, Int, Tensor};

use crate::KernelBackend;
use crate::bias_dropout_add;
use crate::bias_gelu;
use crate::cross_entropy::{self, Statistics};
use crate::embedding::{self, TokenRange};
use crate::error::KernelError;
use crate::flash_attention::{self, AttentionOptions, AttentionSizes, PackedHeads};
use crate::linear::{self, LinearInputs};
use crate::norm::{self, Addends, NormParameters};
use crate::rotary::{self, RotaryAngles};
use crate::softmax::{self, SoftmaxMask};
use crate::swiglu;

impl<B: KernelBackend, C: CheckpointStrategy> KernelBackend for Autodiff<B, C> {
    fn check_attention(
        device: &Self::Device,
        operation: &'static str,
        dtype: DType,
        sizes: AttentionSizes,
    ) -> Result<(), KernelError> {
        B::check_attention(device, operation, dtype, sizes)
    }

    fn flash_attention(
        inputs: [Tensor<Self, 4>; 3],
        bias: Option<Tensor<Self, 2>>,
        options: AttentionOptions,
    ) -> Tensor<Self, 4> {
        flash_attention::autodiff::separate(inputs, bias, options)
    }

    fn flash_attention_packed(
        packed: Tensor<Self, 4>,
        heads: PackedHeads,
        bias: Option<Tensor<Self, 2>>,
        options: AttentionOptions,
    ) -> Tensor<Self, 4> {
        flash_attention::autodiff::packed(packed, heads, bias, options)
    }

    fn multiplies_in_library() -> bool {
        B::multiplies_in_library()
    }

    fn affine(inputs: LinearInputs<Self>) -> Tensor<Self, 2> {
        linear::autodiff::linear(inputs)
    }

    fn scaled_masked_softmax(scores: Tensor<Self, 4>, mask: SoftmaxMask<Self>, scale: f64) -> Tensor<Self, 4> {
        softmax::autodiff::scaled_masked_softmax(scores, mask, scale)
    }

    fn norm(input: Tensor<Self, 2>, parameters: NormParameters<Self>) -> Tensor<Self, 2> {
        norm::autodiff::norm(input, parameters)
    }

    fn norm_of_stream(stream: Tensor<Self, 2>, parameters: NormParameters<Self>) -> [Tensor<Self, 2>; 2] {
        norm::autodiff::norm_of_stream(stream, parameters)
    }

    fn add_norm(addends: Addends<Self>, parameters: NormParameters<Self>) -> [Tensor<Self, 2>; 2] {
        norm::autodiff::add_norm(addends, parameters)
    }

    fn bias_dropout_add(addends: Addends<Self>) -> Tensor<Self, 2> {
        bias_dropout_add::autodiff::bias_dropout_add(addends)
    }

    fn bias_gelu(input: Tensor<Self, 2>, bias: Tensor<Self, 1>) -> Tensor<Self, 2> {
        bias_gelu::autodiff::bias_gelu(input, bias)
    }

    fn swiglu(input: Tensor<Self, 2>) -> Tensor<Self, 2> {
        swiglu::autodiff::swiglu(input)
    }

    fn rotary(input: Tensor<Self, 4>, angles: Option<RotaryAngles<Self>>) -> Tensor<Self, 3> {
        rotary::autodiff::rotary(input, angles)
    }

    fn embedding_rows(table: Tensor<Self, 2>, tokens: Tensor<Self, 1, Int>, range: TokenRange) -> Tensor<Self, 2> {
        embedding::autodiff::embedding(table, tokens, range)
    }

    fn cross_entropy(
        logits: Tensor<Self, 2>,
        targets: Tensor<Self, 1, Int>,
        valid: usize,
        combine: impl FnOnce(Statistics<Self>) -> Statistics<Self>,
    ) -> Tensor<Self, 1> {
        cross_entropy::autodiff::cross_entropy(logits, targets, valid, combine)
    }
}
