//! The operations on CubeCL's backends: CUDA, Vulkan and others.

use burn::tensor::Tensor;
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};

use super::KernelBackend;
use crate::flash_attention::{self, AttentionForward, AttentionOptions, PackedHeads};

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
}
