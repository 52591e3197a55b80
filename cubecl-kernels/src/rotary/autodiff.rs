//! The rotation as a node of the graph: keeps the angles.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::Tensor;

use super::{RotaryAngles, RotaryHeads};
use crate::KernelBackend;
use crate::tape::{inner, primitive, record};

pub(crate) fn rotary<B: KernelBackend, C: CheckpointStrategy>(
    input: Tensor<Autodiff<B, C>, 4>,
    angles: Option<RotaryAngles<Autodiff<B, C>>>,
) -> Tensor<Autodiff<B, C>, 3> {
    let (heads, angles) = (RotaryHeads::of(input.dims()), angles.map(RotaryAngles::inner));
    let output = B::rotary(inner(&input), angles.clone());
    record([primitive(input)], output, move |gradient, _| {
        [Some(primitive(B::rotary_backward(gradient, heads, angles)))]
    })
}
