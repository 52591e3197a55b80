//! The operations on burn's CPU backend.

use burn::tensor::Tensor;
use burn_flex::Flex;

use super::KernelBackend;
use crate::flash_attention::{self, AttentionForward, AttentionOptions, PackedHeads};
use crate::linear::{self, LinearGradients, LinearInputs, LinearWanted, WeightOrder};

impl KernelBackend for Flex {
    fn flash_attention_forward(inputs: [Tensor<Self, 4>; 3], options: &AttentionOptions) -> AttentionForward<Self> {
        flash_attention::flex::forward(inputs, options)
    }

    fn flash_attention_backward(
        inputs: [Tensor<Self, 4>; 3],
        forward: AttentionForward<Self>,
        gradient: Tensor<Self, 4>,
        options: &AttentionOptions,
    ) -> [Tensor<Self, 4>; 3] {
        flash_attention::flex::backward(inputs, forward, gradient, options)
    }

    fn flash_attention_packed_backward(
        packed: Tensor<Self, 4>,
        heads: PackedHeads,
        forward: AttentionForward<Self>,
        gradient: Tensor<Self, 4>,
        options: &AttentionOptions,
    ) -> Tensor<Self, 4> {
        flash_attention::flex::packed_backward(packed, heads, forward, gradient, options)
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
