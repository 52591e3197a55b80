//! Fused attention: each rank its samples and heads.

use burn::tensor::Tensor;
use burn::tensor::ops::FloatTensor;
use cubecl_kernels::flash_attention::{
    AttentionBackward, AttentionForward, AttentionOptions, BackwardBias, PackedHeads,
};

use super::super::Sharded;
use super::super::apply::{Placed, apply};
use super::super::rules::module::Named;
use super::{FloatSharded, local, placed, primitive, rows_of, tensor};
use crate::collectives::CollectiveBackend;

/// Of queries, keys and values, and of the bias where that is wanted.
type Gradients<B> = ([Tensor<Sharded<B>, 4>; 3], Option<Tensor<Sharded<B>, 2>>);

pub(super) fn forward<B: CollectiveBackend>(
    inputs: [Tensor<Sharded<B>, 4>; 3],
    bias: Option<Tensor<Sharded<B>, 2>>,
    options: &AttentionOptions,
) -> AttentionForward<Sharded<B>> {
    let heads = Heads::of(&inputs);
    let names = match bias {
        None => heads.names("b.h.,b.h.,b.h.->b.h.,bh.", "b...,b...,b...->b...,b.."),
        Some(_) => heads.names("b.h.,b.h.,b.h.,h.->b.h.,bh.", "b...,b...,b...,..->b...,b.."),
    };
    let dims = inputs[0].dims();
    let [query, key, value] = inputs.map(placed);
    let rule = || Box::new(Named::new(names)) as _;
    let (output, log_sum_exp) = apply(
        "flash_attention",
        (query, key, value, bias.map(placed)),
        rule,
        |(query, key, value, bias), placed| {
            let inputs = [query, key, value].map(local::<B, 4>);
            let options = of_part(options, dims, placed);
            let forward = B::flash_attention_forward(inputs, bias.map(local), &options);
            (primitive(forward.output), primitive(forward.log_sum_exp))
        },
    );
    AttentionForward {
        output: tensor(output),
        log_sum_exp: tensor(log_sum_exp),
    }
}

/// The gradient of the bias is a sum over the samples, of which a rank with some of them has a term.
pub(super) fn backward<B: CollectiveBackend>(
    inputs: [Tensor<Sharded<B>, 4>; 3],
    pass: AttentionBackward<Sharded<B>>,
    options: &AttentionOptions,
) -> Gradients<B> {
    let heads = Heads::of(&inputs);
    let is_bias_wanted = pass.bias.as_ref().map(|bias| bias.is_wanted);
    let names = match is_bias_wanted {
        None => heads.names(
            "b.h.,b.h.,b.h.,b.h.,bh.,b.h.->b.h.,b.h.,b.h.",
            "b...,b...,b...,b...,b..,b...->b...,b...,b...",
        ),
        Some(false) => heads.names(
            "b.h.,b.h.,b.h.,b.h.,bh.,b.h.,h.->b.h.,b.h.,b.h.",
            "b...,b...,b...,b...,b..,b...,..->b...,b...,b...",
        ),
        Some(true) => heads.names(
            "b.h.,b.h.,b.h.,b.h.,bh.,b.h.,h.->b.h.,b.h.,b.h.,h.",
            "b...,b...,b...,b...,b..,b...,..->b...,b...,b...,..",
        ),
    };
    let dims = inputs[0].dims();
    let inputs = inputs.map(placed).to_vec();
    let rule = || Box::new(Named::new(names).linear(&[5])) as _;
    let gradients: Vec<Option<FloatSharded<B>>> = apply(
        "flash_attention_backward",
        (inputs, of_pass(pass)),
        rule,
        |(inputs, pass), placed| {
            let mut inputs = inputs.into_iter().map(local::<B, 4>);
            let inputs = std::array::from_fn(|_| inputs.next().expect("query, key and value"));
            let options = of_part(options, dims, placed);
            let (gradients, of_bias) = B::flash_attention_backward(inputs, of_rank(pass, is_bias_wanted), &options);
            let of_bias = of_bias.map(primitive);
            gradients.map(primitive).into_iter().chain(of_bias).map(Some).collect()
        },
    );
    let mut gradients = gradients.into_iter().flatten();
    let of_inputs = std::array::from_fn(|_| tensor(gradients.next().expect("of query, key and value")));
    (of_inputs, gradients.next().map(tensor))
}

/// As [`forward`] of queries, keys and values in one tensor: heads stay together, since a cut of all of them is none of
/// each.
pub(super) fn packed_forward<B: CollectiveBackend>(
    packed: Tensor<Sharded<B>, 4>,
    heads: PackedHeads,
    bias: Option<Tensor<Sharded<B>, 2>>,
    options: &AttentionOptions,
) -> AttentionForward<Sharded<B>> {
    let dims = packed.dims();
    let names = match bias {
        None => "b...->b...,b..",
        Some(_) => "b...,..->b...,b..",
    };
    let rule = || Box::new(Named::new(names)) as _;
    let operands = (placed(packed), bias.map(placed));
    let (output, log_sum_exp) = apply("flash_attention_packed", operands, rule, |(packed, bias), placed| {
        let options = of_part(options, dims, placed);
        let forward = B::flash_attention_packed_forward(local(packed), heads, bias.map(local), &options);
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
    pass: AttentionBackward<Sharded<B>>,
    options: &AttentionOptions,
) -> (Tensor<Sharded<B>, 4>, Option<Tensor<Sharded<B>, 2>>) {
    let dims = packed.dims();
    let is_bias_wanted = pass.bias.as_ref().map(|bias| bias.is_wanted);
    let names = match is_bias_wanted {
        None => "b...,b...,b..,b...->b...",
        Some(false) => "b...,b...,b..,b...,..->b...",
        Some(true) => "b...,b...,b..,b...,..->b...,..",
    };
    let operands = (placed(packed), of_pass(pass));
    let rule = || Box::new(Named::new(names).linear(&[3])) as _;
    let run = |(packed, pass), placed: &Placed| {
        let options = of_part(options, dims, placed);
        let pass = of_rank(pass, is_bias_wanted);
        let (gradient, of_bias) = B::flash_attention_packed_backward(local(packed), heads, pass, &options);
        vec![Some(primitive(gradient)), of_bias.map(primitive)]
    };
    let gradients: Vec<Option<FloatSharded<B>>> = apply("flash_attention_packed_backward", operands, rule, run);
    let mut gradients = gradients.into_iter().flatten();
    let of_packed = tensor(gradients.next().expect("of the packed tensor"));
    (of_packed, gradients.next().map(tensor))
}

type PassOperands<B> = (
    FloatSharded<B>,
    FloatSharded<B>,
    FloatSharded<B>,
    Option<FloatSharded<B>>,
);
type PassLocals<B> = (FloatTensor<B>, FloatTensor<B>, FloatTensor<B>, Option<FloatTensor<B>>);

/// The operands of a backward pass that are no inputs: the output, its statistics, its gradient, the bias.
fn of_pass<B: CollectiveBackend>(pass: AttentionBackward<Sharded<B>>) -> PassOperands<B> {
    (
        placed(pass.forward.output),
        placed(pass.forward.log_sum_exp),
        placed(pass.gradient),
        pass.bias.map(|bias| placed(bias.table)),
    )
}

/// This rank's part of them.
fn of_rank<B: CollectiveBackend>(
    (output, log_sum_exp, gradient, bias): PassLocals<B>,
    is_bias_wanted: Option<bool>,
) -> AttentionBackward<B> {
    AttentionBackward {
        forward: AttentionForward {
            output: local(output),
            log_sum_exp: local(log_sum_exp),
        },
        gradient: local(gradient),
        bias: bias.map(|bias| BackwardBias {
            table: local(bias),
            is_wanted: is_bias_wanted == Some(true),
        }),
    }
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
    options.documents = options.documents.map(|documents| documents.of_samples(samples.clone()));
    options.key_lengths = options.key_lengths.map(|lengths| lengths.of_samples(samples));
    options
}
