//! Attention as a node of the graph: keeps queries, keys, values, the output and a number for each query and head.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::Tensor;

use super::{AttentionOptions, PackedHeads};
use crate::KernelBackend;
use crate::tape::{inner, primitive, record};

pub(crate) fn separate<B: KernelBackend, C: CheckpointStrategy>(
    inputs: [Tensor<Autodiff<B, C>, 4>; 3],
    options: AttentionOptions,
) -> Tensor<Autodiff<B, C>, 4> {
    let inside = inputs.each_ref().map(inner);
    let forward = B::flash_attention_forward(inside.clone(), &options);
    let output = forward.output.clone();
    record(inputs.map(primitive), output, move |gradient, wanted| {
        let gradients = B::flash_attention_backward(inside, forward, gradient, &options);
        let mut wanted = wanted.into_iter();
        gradients.map(|gradient| wanted.next().unwrap_or(false).then(|| primitive(gradient)))
    })
}

pub(crate) fn packed<B: KernelBackend, C: CheckpointStrategy>(
    packed: Tensor<Autodiff<B, C>, 4>,
    heads: PackedHeads,
    options: AttentionOptions,
) -> Tensor<Autodiff<B, C>, 4> {
    let inside = inner(&packed);
    let forward = B::flash_attention_packed_forward(inside.clone(), heads, &options);
    let output = forward.output.clone();
    record([primitive(packed)], output, move |gradient, _| {
        let gradient = B::flash_attention_packed_backward(inside, heads, forward, gradient, &options);
        [Some(primitive(gradient))]
    })
}
