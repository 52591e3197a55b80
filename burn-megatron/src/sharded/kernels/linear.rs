//! Fused linear layers: each rank its rows, its columns of the weight, or its terms of the sum.

use burn::tensor::Tensor;
use cubecl_kernels::linear::{LinearGradients, LinearInputs, LinearWanted, WeightOrder};
use cubecl_kernels::norm::AddRule;

use super::super::Sharded;
use super::super::apply::{Placed, apply};
use super::super::rules::Rule;
use super::super::rules::matmul::{Linear, LinearBiasGradient, LinearTransposed, LinearWeightGradient};
use super::{FloatSharded, local, placed, primitive, tensor};
use crate::collectives::CollectiveBackend;

pub(super) fn affine<B: CollectiveBackend>(
    name: &'static str,
    inputs: LinearInputs<Sharded<B>>,
) -> Tensor<Sharded<B>, 2> {
    let LinearInputs {
        input,
        weight,
        bias,
        order,
    } = inputs;
    let operands = (placed(input), placed(weight), bias.map(placed));
    tensor(apply(
        name,
        operands,
        || rule(order),
        |(input, weight, bias), _| {
            primitive(B::affine(LinearInputs {
                input: local(input),
                weight: local(weight),
                bias: bias.map(local),
                order,
            }))
        },
    ))
}

fn rule(order: WeightOrder) -> Box<dyn Rule> {
    match order {
        WeightOrder::InputFirst => Box::new(Linear),
        WeightOrder::OutputFirst => Box::new(LinearTransposed),
    }
}

/// Where something is placed, each gradient by a rule of its own: the weight's and the input's may need the output's in
/// different places.
pub(super) fn backward<B: CollectiveBackend>(
    input: Tensor<Sharded<B>, 2>,
    weight: Tensor<Sharded<B>, 2>,
    order: WeightOrder,
    gradient: Tensor<Sharded<B>, 2>,
    wanted: LinearWanted,
) -> LinearGradients<Sharded<B>> {
    let operands = [input, weight, gradient].map(placed);
    if operands.iter().all(|operand| operand.mesh().is_none()) {
        return whole_backward(operands, order, wanted);
    }
    let [input, weight, gradient] = operands;
    // The same weight, from its outputs to its inputs.
    let turned = match order {
        WeightOrder::InputFirst => WeightOrder::OutputFirst,
        WeightOrder::OutputFirst => WeightOrder::InputFirst,
    };
    let of_input = |gradient| LinearInputs {
        input: tensor(gradient),
        weight: tensor(weight),
        bias: None,
        order: turned,
    };
    LinearGradients {
        input: wanted
            .input
            .then(|| affine("affine_x_backward", of_input(gradient.clone()))),
        weight: wanted.weight.then(|| weight_gradient(input, order, gradient.clone())),
        bias: wanted.bias.then(|| bias_gradient(gradient)),
    }
}

/// The gradients where every rank has everything: one operation of the inner backend.
fn whole_backward<B: CollectiveBackend>(
    operands: [FloatSharded<B>; 3],
    order: WeightOrder,
    wanted: LinearWanted,
) -> LinearGradients<Sharded<B>> {
    let run = |(input, weight, gradient), _: &Placed| {
        let gradients = B::affine_backward(local(input), local(weight), order, local(gradient), wanted);
        let matrices = [gradients.input, gradients.weight].map(|gradient| gradient.map(primitive));
        matrices.into_iter().chain([gradients.bias.map(primitive)]).collect()
    };
    let rule = || unreachable!("no operand is placed");
    let gradients: Vec<Option<FloatSharded<B>>> = apply("affine_backward", <(_, _, _)>::from(operands), rule, run);
    let mut gradients = gradients.into_iter();
    let mut next = || gradients.next().expect("of input, weight and bias");
    LinearGradients {
        input: next().map(tensor),
        weight: next().map(tensor),
        bias: next().map(tensor),
    }
}

fn weight_gradient<B: CollectiveBackend>(
    input: FloatSharded<B>,
    order: WeightOrder,
    gradient: FloatSharded<B>,
) -> Tensor<Sharded<B>, 2> {
    let factors = match order {
        WeightOrder::InputFirst => (input, gradient),
        WeightOrder::OutputFirst => (gradient, input),
    };
    let rule = || Box::new(LinearWeightGradient) as _;
    tensor(apply("affine_weight_backward", factors, rule, |(left, right), _| {
        primitive(B::affine(LinearInputs {
            input: local::<B, 2>(left).transpose(),
            weight: local(right),
            bias: None,
            order: WeightOrder::InputFirst,
        }))
    }))
}

fn bias_gradient<B: CollectiveBackend>(gradient: FloatSharded<B>) -> Tensor<Sharded<B>, 1> {
    let rule = || Box::new(LinearBiasGradient) as _;
    tensor(apply("affine_bias_backward", gradient, rule, |gradient, _| {
        let of_bias = AddRule {
            has_bias: true,
            dropout: None,
        };
        let gradients = B::bias_dropout_add_backward(local(gradient), &of_bias);
        primitive(gradients.bias.expect("it has a bias"))
    }))
}
