//! Attention as a node of the graph: keeps queries, keys, values, the bias, the output and a number for each query and
//! head.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::Tensor;

use super::{AttentionBackward, AttentionForward, AttentionOptions, BackwardBias, PackedHeads};
use crate::KernelBackend;
use crate::tape::{Kept, inner, keep, or_stand_in, primitive, record};

pub(crate) fn separate<B: KernelBackend, C: CheckpointStrategy>(
    inputs: [Tensor<Autodiff<B, C>, 4>; 3],
    bias: Option<Tensor<Autodiff<B, C>, 2>>,
    options: AttentionOptions,
) -> Tensor<Autodiff<B, C>, 4> {
    let inside = inputs.each_ref().map(inner);
    let table = bias.as_ref().map(inner);
    let forward = B::flash_attention_forward(inside.clone(), table.clone(), &options);
    let output = forward.output.clone();
    let (inside, forward) = (inside.map(keep), KeptForward::of(forward));
    let run = move |gradient, is_wanted| {
        let pass = AttentionBackward {
            forward: forward.get(),
            gradient,
            bias: table.map(|table| BackwardBias { table, is_wanted }),
        };
        B::flash_attention_backward(inside.map(Kept::get), pass, &options)
    };
    let bias = or_stand_in(bias, &inputs[0]);
    let [query, key, value] = inputs.map(primitive);
    record([query, key, value, bias], output, move |gradient, wanted| {
        let ([query, key, value], bias) = run(gradient, wanted[3]);
        let of_input = |which: usize, gradient| wanted[which].then(|| primitive(gradient));
        [
            of_input(0, query),
            of_input(1, key),
            of_input(2, value),
            bias.map(primitive),
        ]
    })
}

pub(crate) fn packed<B: KernelBackend, C: CheckpointStrategy>(
    packed: Tensor<Autodiff<B, C>, 4>,
    heads: PackedHeads,
    bias: Option<Tensor<Autodiff<B, C>, 2>>,
    options: AttentionOptions,
) -> Tensor<Autodiff<B, C>, 4> {
    let inside = inner(&packed);
    let table = bias.as_ref().map(inner);
    let forward = B::flash_attention_packed_forward(inside.clone(), heads, table.clone(), &options);
    let output = forward.output.clone();
    let (inside, forward) = (keep(inside), KeptForward::of(forward));
    let run = move |gradient, is_wanted| {
        let pass = AttentionBackward {
            forward: forward.get(),
            gradient,
            bias: table.map(|table| BackwardBias { table, is_wanted }),
        };
        B::flash_attention_packed_backward(inside.get(), heads, pass, &options)
    };
    let bias = or_stand_in(bias, &packed);
    record([primitive(packed), bias], output, move |gradient, wanted| {
        let (gradient, bias) = run(gradient, wanted[1]);
        [wanted[0].then(|| primitive(gradient)), bias.map(primitive)]
    })
}

/// What is kept of the forward pass.
struct KeptForward<B: KernelBackend> {
    output: Kept<B, 4>,
    log_sum_exp: Tensor<B, 3>,
}

impl<B: KernelBackend> KeptForward<B> {
    fn of(AttentionForward { output, log_sum_exp }: AttentionForward<B>) -> Self {
        Self {
            output: keep(output),
            log_sum_exp,
        }
    }

    fn get(self) -> AttentionForward<B> {
        AttentionForward {
            output: self.output.get(),
            log_sum_exp: self.log_sum_exp,
        }
    }
}
