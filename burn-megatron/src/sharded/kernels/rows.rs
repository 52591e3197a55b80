//! Fused sums of a residual stream, and softmax on rows of scores: each rank its part.

use burn::tensor::Tensor;
use cubecl_kernels::norm::{AddRule, AddendGradients, Addends};
use cubecl_kernels::softmax::SoftmaxMask;

use super::super::Sharded;
use super::super::apply::{Placed, apply};
use super::super::rules::module::Named;
use super::{FloatSharded, local, of_rows, placed, primitive, tensor};
use crate::collectives::CollectiveBackend;

pub(super) fn bias_dropout_add<B: CollectiveBackend>(addends: Addends<Sharded<B>>) -> Tensor<Sharded<B>, 2> {
    let names = match addends.bias {
        Some(_) => "r.,.,r.->r.",
        None => "r.,r.->r.",
    };
    let dropout = addends.dropout;
    let operands = (
        placed(addends.input),
        addends.bias.map(placed),
        placed(addends.residual),
    );
    let rule = || Box::new(Named::new(names)) as _;
    let output = apply("bias_dropout_add", operands, rule, |(input, bias, residual), placed| {
        primitive(B::bias_dropout_add(Addends {
            input: local(input),
            bias: bias.map(local),
            residual: local(residual),
            dropout: of_rows(&dropout, placed),
        }))
    });
    tensor(output)
}

pub(super) fn bias_dropout_add_backward<B: CollectiveBackend>(
    gradient: Tensor<Sharded<B>, 2>,
    addends: &AddRule,
) -> AddendGradients<Sharded<B>> {
    let names = if addends.has_bias { "r.->r.,r.,." } else { "r.->r.,r." };
    // What comes as a sum is made: input and residual would both need it.
    let rule = || Box::new(Named::new(names).summed()) as _;
    let run = |gradient, placed: &Placed| {
        let rule = AddRule {
            has_bias: addends.has_bias,
            dropout: of_rows(&addends.dropout, placed),
        };
        let gradients = B::bias_dropout_add_backward(local(gradient), &rule);
        let matrices = [gradients.input, gradients.residual].map(primitive).into_iter();
        matrices.chain(gradients.bias.map(primitive)).map(Some).collect()
    };
    let results: Vec<Option<FloatSharded<B>>> = apply("bias_dropout_add_backward", placed(gradient), rule, run);
    let mut results = results.into_iter().flatten();
    let mut next = || results.next().expect("one for each name");
    AddendGradients {
        input: tensor(next()),
        residual: tensor(next()),
        bias: addends.has_bias.then(|| tensor(next())),
    }
}

pub(super) fn scaled_masked_softmax<B: CollectiveBackend>(
    scores: Tensor<Sharded<B>, 4>,
    mask: SoftmaxMask<Sharded<B>>,
    scale: f64,
) -> Tensor<Sharded<B>, 4> {
    // A causal mask is for all queries.
    let names = match &mask {
        SoftmaxMask::Nothing => "bhq.->bhq.",
        SoftmaxMask::Causal => "bh..->bh..",
        SoftmaxMask::Given(_) => "bhq.,bhq.->bhq.",
    };
    let is_causal = matches!(mask, SoftmaxMask::Causal);
    let given = match mask {
        SoftmaxMask::Given(mask) => Some(mask.into_primitive()),
        SoftmaxMask::Nothing | SoftmaxMask::Causal => None,
    };
    let rule = || Box::new(Named::new(names)) as _;
    let output = apply(
        "scaled_masked_softmax",
        (placed(scores), given),
        rule,
        |(scores, given), _| {
            let mask = match given {
                Some(mask) => SoftmaxMask::Given(Tensor::from_primitive(mask)),
                None if is_causal => SoftmaxMask::Causal,
                None => SoftmaxMask::Nothing,
            };
            primitive(B::scaled_masked_softmax(local(scores), mask, scale))
        },
    );
    tensor(output)
}
