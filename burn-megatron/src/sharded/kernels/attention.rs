//! Fused attention: each rank its samples and heads.

use burn::tensor::Tensor;
use cubecl_kernels::flash_attention::{AttentionForward, AttentionOptions, PackedHeads};

use super::super::Sharded;
use super::super::apply::{Placed, apply};
use super::super::rules::module::Named;
use super::{FloatSharded, local, placed, primitive, rows_of, tensor};
use crate::collectives::CollectiveBackend;

pub(super) fn forward<B: CollectiveBackend>(
    inputs: [Tensor<Sharded<B>, 4>; 3],
    options: &AttentionOptions,
) -> AttentionForward<Sharded<B>> {
    let names = Heads::of(&inputs).names("b.h.,b.h.,b.h.->b.h.,bh.", "b...,b...,b...->b...,b..");
    let dims = inputs[0].dims();
    let [query, key, value] = inputs.map(placed);
    let rule = || Box::new(Named::new(names)) as _;
    let (output, log_sum_exp) = apply(
        "flash_attention",
        (query, key, value),
        rule,
        |(query, key, value), placed| {
            let inputs = [query, key, value].map(local::<B, 4>);
            let forward = B::flash_attention_forward(inputs, &of_part(options, dims, placed));
            (primitive(forward.output), primitive(forward.log_sum_exp))
        },
    );
    AttentionForward {
        output: tensor(output),
        log_sum_exp: tensor(log_sum_exp),
    }
}

pub(super) fn backward<B: CollectiveBackend>(
    inputs: [Tensor<Sharded<B>, 4>; 3],
    forward: AttentionForward<Sharded<B>>,
    gradient: Tensor<Sharded<B>, 4>,
    options: &AttentionOptions,
) -> [Tensor<Sharded<B>, 4>; 3] {
    let names = Heads::of(&inputs).names(
        "b.h.,b.h.,b.h.,b.h.,bh.,b.h.->b.h.,b.h.,b.h.",
        "b...,b...,b...,b...,b..,b...->b...,b...,b...",
    );
    let dims = inputs[0].dims();
    let [query, key, value] = inputs.map(placed);
    let (output, log_sum_exp) = (placed(forward.output), placed(forward.log_sum_exp));
    let operands = (query, key, value, output, log_sum_exp, placed(gradient));
    let rule = || Box::new(Named::new(names).linear(&[5])) as _;
    let gradients: Vec<Option<FloatSharded<B>>> = apply(
        "flash_attention_backward",
        operands,
        rule,
        |(query, key, value, output, log_sum_exp, gradient), placed| {
            let inputs = [query, key, value].map(local::<B, 4>);
            let forward = AttentionForward {
                output: local(output),
                log_sum_exp: local(log_sum_exp),
            };
            let options = of_part(options, dims, placed);
            let gradients = B::flash_attention_backward(inputs, forward, local(gradient), &options);
            gradients.map(|gradient| Some(primitive(gradient))).to_vec()
        },
    );
    let mut gradients = gradients.into_iter().flatten().map(tensor);
    std::array::from_fn(|_| gradients.next().expect("of query, key and value"))
}

/// As [`forward`] of queries, keys and values in one tensor: heads stay together, since a cut of all of them is none of
/// each.
pub(super) fn packed_forward<B: CollectiveBackend>(
    packed: Tensor<Sharded<B>, 4>,
    heads: PackedHeads,
    options: &AttentionOptions,
) -> AttentionForward<Sharded<B>> {
    let dims = packed.dims();
    let rule = || Box::new(Named::new("b...->b...,b..")) as _;
    let (output, log_sum_exp) = apply("flash_attention_packed", placed(packed), rule, |packed, placed| {
        let forward = B::flash_attention_packed_forward(local(packed), heads, &of_part(options, dims, placed));
        (primitive(forward.output), primitive(forward.log_sum_exp))
    });
    AttentionForward {
        output: tensor(output),
        log_sum_exp: tensor(log_sum_exp),
    }
}

pub(super) fn packed_backward<B: CollectiveBackend>(
    packed: Tensor<Sharded<B>, 4>,
    heads: PackedHeads,
    forward: AttentionForward<Sharded<B>>,
    gradient: Tensor<Sharded<B>, 4>,
    options: &AttentionOptions,
) -> Tensor<Sharded<B>, 4> {
    let dims = packed.dims();
    let operands = (
        placed(packed),
        placed(forward.output),
        placed(forward.log_sum_exp),
        placed(gradient),
    );
    let rule = || Box::new(Named::new("b...,b...,b..,b...->b...").linear(&[3])) as _;
    let run = |(packed, output, log_sum_exp, gradient), placed: &Placed| {
        let forward = AttentionForward {
            output: local(output),
            log_sum_exp: local(log_sum_exp),
        };
        let options = of_part(options, dims, placed);
        primitive(B::flash_attention_packed_backward(
            local(packed),
            heads,
            forward,
            local(gradient),
            &options,
        ))
    };
    tensor(apply("flash_attention_packed_backward", operands, rule, run))
}

/// Whether queries, keys and values have the same heads.
enum Heads {
    Same,
    Shared,
}

impl Heads {
    fn of<B: CollectiveBackend>([query, key, _]: &[Tensor<Sharded<B>, 4>; 3]) -> Self {
        if query.dims()[2] == key.dims()[2] {
            Self::Same
        } else {
            Self::Shared
        }
    }

    /// Heads that share keys stay together.
    fn names(&self, same: &'static str, shared: &'static str) -> &'static str {
        match self {
            Self::Same => same,
            Self::Shared => shared,
        }
    }
}

/// The options of this rank's samples and heads, for queries `[batch, queries, heads, d_head]`.
fn of_part(options: &AttentionOptions, [batch, queries, heads, _]: [usize; 4], placed: &Placed) -> AttentionOptions {
    let (samples, own_heads) = (placed.operand_range(0, 0, batch), placed.operand_range(0, 2, heads));
    let mut options = options.clone();
    if let Some(dropout) = &mut options.dropout {
        dropout.first_head += own_heads.start as u32;
        *dropout = rows_of(dropout, samples.start * queries..samples.end * queries);
    }
    options.documents = options.documents.map(|documents| documents.of_samples(samples));
    options
}
