//! The operations on CubeCL's backends: CUDA, Vulkan and others.

use burn::tensor::Tensor;
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};

use super::KernelBackend;
use crate::flash_attention::{self, AttentionForward, AttentionOptions, PackedHeads};
use crate::norm::{self, AddRule, AddendGradients, Addends, NormGradients, NormParameters, NormStatistics};
use crate::softmax::{self, SoftmaxMask};

impl<R, F, I, BT> KernelBackend for CubeBackend<R, F, I, BT>
where
    R: CubeRuntime,
    F: FloatElement,
    I: IntElement,
    BT: BoolElement,
{
    fn flash_attention_forward(inputs: [Tensor<Self, 4>; 3], options: &AttentionOptions) -> AttentionForward<Self> {
        flash_attention::launch::separate_forward(inputs, options)
    }

    fn flash_attention_backward(
        inputs: [Tensor<Self, 4>; 3],
        forward: AttentionForward<Self>,
        gradient: Tensor<Self, 4>,
        options: &AttentionOptions,
    ) -> [Tensor<Self, 4>; 3] {
        flash_attention::launch::separate_backward(inputs, forward, gradient, options)
    }

    fn flash_attention_packed_forward(
        packed: Tensor<Self, 4>,
        heads: PackedHeads,
        options: &AttentionOptions,
    ) -> AttentionForward<Self> {
        flash_attention::launch::packed_forward(packed, heads, options)
    }

    fn flash_attention_packed_backward(
        packed: Tensor<Self, 4>,
        heads: PackedHeads,
        forward: AttentionForward<Self>,
        gradient: Tensor<Self, 4>,
        options: &AttentionOptions,
    ) -> Tensor<Self, 4> {
        flash_attention::launch::packed_backward(packed, heads, forward, gradient, options)
    }

    fn scaled_masked_softmax(scores: Tensor<Self, 4>, mask: SoftmaxMask<Self>, scale: f64) -> Tensor<Self, 4> {
        softmax::launch::forward(scores, mask, scale)
    }

    fn scaled_masked_softmax_backward(
        output: Tensor<Self, 4>,
        gradient: Tensor<Self, 4>,
        scale: f64,
    ) -> Tensor<Self, 4> {
        softmax::launch::backward(output, gradient, scale)
    }

    fn norm_forward(
        input: Tensor<Self, 2>,
        parameters: &NormParameters<Self>,
    ) -> (Tensor<Self, 2>, NormStatistics<Self>) {
        norm::launch::forward(input, parameters)
    }

    fn norm_backward(
        input: Tensor<Self, 2>,
        parameters: &NormParameters<Self>,
        statistics: NormStatistics<Self>,
        gradient: Tensor<Self, 2>,
    ) -> NormGradients<Self> {
        norm::launch::backward(input, parameters, statistics, gradient)
    }

    fn add_norm_forward(
        addends: Addends<Self>,
        parameters: &NormParameters<Self>,
    ) -> ([Tensor<Self, 2>; 2], NormStatistics<Self>) {
        norm::launch::add_forward(addends, parameters)
    }

    fn add_norm_backward(
        hidden: Tensor<Self, 2>,
        parameters: &NormParameters<Self>,
        statistics: NormStatistics<Self>,
        gradients: [Option<Tensor<Self, 2>>; 2],
        addends: &AddRule,
    ) -> (AddendGradients<Self>, NormGradients<Self>) {
        norm::launch::add_backward(hidden, parameters, statistics, gradients, addends)
    }
}
