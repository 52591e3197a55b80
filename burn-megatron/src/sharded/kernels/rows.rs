//! Fused operations element by element, and on rows of scores: each rank its part.

use burn::tensor::Tensor;
use cubecl_kernels::bias_gelu::BiasGeluGradients;
use cubecl_kernels::norm::{AddRule, AddendGradients, Addends};
use cubecl_kernels::softmax::SoftmaxMask;

use super::super::Sharded;
use super::super::apply::{Placed, apply};
use super::super::rules::module::Named;
use super::{FloatSharded, local, local_bool, of_rows, placed, placed_bool, primitive, tensor};
use crate::collectives::CollectiveBackend;

pub(super) fn bias_gelu<B: CollectiveBackend>(
    input: Tensor<Sharded<B>, 2>,
    bias: Tensor<Sharded<B>, 1>,
) -> Tensor<Sharded<B>, 2> {
    let rule = || Box::new(Named::new("rc,c->rc")) as _;
    let operands = (placed(input), placed(bias));
    tensor(apply("bias_gelu", operands, rule, |(input, bias), _| {
        primitive(B::bias_gelu(local(input), local(bias)))
    }))
}

pub(super) fn bias_gelu_backward<B: CollectiveBackend>(
    input: Tensor<Sharded<B>, 2>,
    bias: Tensor<Sharded<B>, 1>,
    gradient: Tensor<Sharded<B>, 2>,
) -> BiasGeluGradients<Sharded<B>> {
    let rule = || Box::new(Named::new("rc,c,rc->rc,c").linear(&[2])) as _;
    let operands = (placed(input), placed(bias), placed(gradient));
    let (input, bias) = apply("bias_gelu_backward", operands, rule, |(input, bias, gradient), _| {
        let gradients = B::bias_gelu_backward(local(input), local(bias), local(gradient));
        (primitive(gradients.input), primitive(gradients.bias))
    });
    BiasGeluGradients {
        input: tensor(input),
        bias: tensor(bias),
    }
}

pub(super) fn swiglu<B: CollectiveBackend>(input: Tensor<Sharded<B>, 2>) -> Tensor<Sharded<B>, 2> {
    let rule = || Box::new(Named::new("r.->r.")) as _;
    let output = apply("swiglu", placed(input), rule, |input, _| {
        primitive(B::swiglu(local(input)))
    });
    tensor(output)
}

pub(super) fn swiglu_backward<B: CollectiveBackend>(
    input: Tensor<Sharded<B>, 2>,
    gradient: Tensor<Sharded<B>, 2>,
) -> Tensor<Sharded<B>, 2> {
    let rule = || Box::new(Named::new("r.,r.->r.").linear(&[1])) as _;
    let operands = (placed(input), placed(gradient));
    tensor(apply("swiglu_backward", operands, rule, |(input, gradient), _| {
        primitive(B::swiglu_backward(local(input), local(gradient)))
    }))
}

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
        SoftmaxMask::Given(mask) => Some(placed_bool(mask)),
        SoftmaxMask::Nothing | SoftmaxMask::Causal => None,
    };
    let rule = || Box::new(Named::new(names)) as _;
    let output = apply(
        "scaled_masked_softmax",
        (placed(scores), given),
        rule,
        |(scores, given), _| {
            let mask = match given {
                Some(mask) => SoftmaxMask::Given(local_bool(mask)),
                None if is_causal => SoftmaxMask::Causal,
                None => SoftmaxMask::Nothing,
            };
            primitive(B::scaled_masked_softmax(local(scores), mask, scale))
        },
    );
    tensor(output)
}

pub(super) fn scaled_masked_softmax_backward<B: CollectiveBackend>(
    output: Tensor<Sharded<B>, 4>,
    gradient: Tensor<Sharded<B>, 4>,
    scale: f64,
) -> Tensor<Sharded<B>, 4> {
    let rule = || Box::new(Named::new("bhq.,bhq.->bhq.").linear(&[1])) as _;
    let operands = (placed(output), placed(gradient));
    tensor(apply(
        "scaled_masked_softmax_backward",
        operands,
        rule,
        |(output, gradient), _| primitive(B::scaled_masked_softmax_backward(local(output), local(gradient), scale)),
    ))
}
