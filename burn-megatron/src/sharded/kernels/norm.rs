//! Fused norms: each rank its rows, alone and with the sum of a residual stream before them.

use burn::tensor::Tensor;
use burn::tensor::ops::FloatTensor;
use cubecl_kernels::norm::{
    AddRule, AddendGradients, Addends, NormGradients, NormKind, NormParameters, NormStatistics,
};

use super::super::Sharded;
use super::super::apply::{Placed, apply};
use super::super::rules::module::Named;
use super::{FloatSharded, local, of_rows, placed, primitive, tensor};
use crate::collectives::CollectiveBackend;

pub(super) fn forward<B: CollectiveBackend>(
    input: Tensor<Sharded<B>, 2>,
    parameters: &NormParameters<Sharded<B>>,
) -> (Tensor<Sharded<B>, 2>, NormStatistics<Sharded<B>>) {
    let names = match (parameters.kind, &parameters.bias) {
        (NormKind::Layer, Some(_)) => "r.,.,.->r.,r,r",
        (NormKind::Layer, None) => "r.,.->r.,r,r",
        (NormKind::Rms, Some(_)) => "r.,.,.->r.,r",
        (NormKind::Rms, None) => "r.,.->r.,r",
    };
    let bias = parameters.bias.clone().map(placed);
    let operands = (placed(input), placed(parameters.weight.clone()), bias);
    let rule = || Box::new(Named::new(names)) as _;
    let results: Vec<Option<FloatSharded<B>>> = apply("norm", operands, rule, |(input, weight, bias), _| {
        let (output, statistics) = B::norm_forward(local(input), &with(parameters, weight, bias));
        let results = [Some(output.into_primitive().tensor()), statistics.mean.map(primitive)];
        let results = results.into_iter().flatten().chain([primitive(statistics.reciprocal)]);
        results.map(Some).collect()
    });
    let mut results = results.into_iter().flatten();
    let mut next = || results.next().expect("one for each name");
    let output = tensor(next());
    let mean = (parameters.kind == NormKind::Layer).then(|| tensor(next()));
    let reciprocal = tensor(next());
    (output, NormStatistics { mean, reciprocal })
}

pub(super) fn backward<B: CollectiveBackend>(
    input: Tensor<Sharded<B>, 2>,
    parameters: &NormParameters<Sharded<B>>,
    statistics: NormStatistics<Sharded<B>>,
    gradient: Tensor<Sharded<B>, 2>,
) -> NormGradients<Sharded<B>> {
    let (names, last): (_, &[usize]) = match (parameters.kind, &parameters.bias) {
        (NormKind::Layer, Some(_)) => ("r.,.,.,r,r,r.->r.,.,.", &[5]),
        (NormKind::Layer, None) => ("r.,.,r,r,r.->r.,.", &[4]),
        (NormKind::Rms, Some(_)) => ("r.,.,.,r,r.->r.,.,.", &[4]),
        (NormKind::Rms, None) => ("r.,.,r,r.->r.,.", &[3]),
    };
    let operands = (
        placed(input),
        placed(parameters.weight.clone()),
        parameters.bias.clone().map(placed),
        statistics.mean.map(placed),
        placed(statistics.reciprocal),
        placed(gradient),
    );
    // Of the weight and the bias each rank has the terms of its rows.
    let rule = || Box::new(Named::new(names).linear(last)) as _;
    let gradients: Vec<Option<FloatSharded<B>>> = apply(
        "norm_backward",
        operands,
        rule,
        |(input, weight, bias, mean, reciprocal, gradient), _| {
            let statistics = NormStatistics {
                mean: mean.map(local),
                reciprocal: local(reciprocal),
            };
            let parameters = with(parameters, weight, bias);
            let gradients = B::norm_backward(local(input), &parameters, statistics, local(gradient));
            let mut all = vec![Some(primitive(gradients.input)), Some(primitive(gradients.weight))];
            all.extend(gradients.bias.map(|bias| Some(primitive(bias))));
            all
        },
    );
    let mut gradients = gradients.into_iter().flatten();
    let mut next = || gradients.next().expect("one for each name");
    NormGradients {
        input: tensor(next()),
        weight: tensor(next()),
        bias: parameters.bias.as_ref().map(|_| tensor(next())),
    }
}

/// Names of what a norm has for each row.
fn of_statistics(kind: NormKind) -> &'static [&'static str] {
    match kind {
        NormKind::Layer => &["r", "r"],
        NormKind::Rms => &["r"],
    }
}

/// The name of a vector of `d_model` elements, where there is one.
fn vector(is_there: bool) -> impl Iterator<Item = &'static str> {
    is_there.then_some(".").into_iter()
}

pub(super) fn add_forward<B: CollectiveBackend>(
    addends: Addends<Sharded<B>>,
    parameters: &NormParameters<Sharded<B>>,
) -> ([Tensor<Sharded<B>, 2>; 2], NormStatistics<Sharded<B>>) {
    let names = || {
        let addends = ["r."].into_iter().chain(vector(addends.bias.is_some())).chain(["r."]);
        addends
            .chain(["."])
            .chain(vector(parameters.bias.is_some()))
            .collect::<Vec<_>>()
    };
    let results = ["r.", "r."].iter().chain(of_statistics(parameters.kind)).copied();
    let rule = Named::of(names(), results);
    let Addends {
        input,
        bias,
        residual,
        dropout,
    } = addends;
    let own = (placed(input), bias.map(placed), placed(residual));
    let of_norm = (placed(parameters.weight.clone()), parameters.bias.clone().map(placed));
    let run = |((input, bias, residual), (weight, norm_bias)): AddLocals<B>, placed: &Placed| {
        let addends = Addends {
            input: local(input),
            bias: bias.map(local),
            residual: local(residual),
            dropout: of_rows(&dropout, placed),
        };
        let (sums, statistics) = B::add_norm_forward(addends, &with(parameters, weight, norm_bias));
        let sums = sums.map(primitive).into_iter();
        let all = sums
            .chain(statistics.mean.map(primitive))
            .chain([primitive(statistics.reciprocal)]);
        all.map(Some).collect()
    };
    let results: Vec<Option<FloatSharded<B>>> = apply("add_norm", (own, of_norm), || Box::new(rule), run);
    let mut results = results.into_iter().flatten();
    let mut next = || results.next().expect("one for each name");
    let sums = [tensor(next()), tensor(next())];
    let mean = (parameters.kind == NormKind::Layer).then(|| tensor(next()));
    let reciprocal = tensor(next());
    (sums, NormStatistics { mean, reciprocal })
}

pub(super) fn add_backward<B: CollectiveBackend>(
    hidden: Tensor<Sharded<B>, 2>,
    parameters: &NormParameters<Sharded<B>>,
    statistics: NormStatistics<Sharded<B>>,
    gradients: [Option<Tensor<Sharded<B>, 2>>; 2],
    addends: &AddRule,
) -> (AddendGradients<Sharded<B>>, NormGradients<Sharded<B>>) {
    let has_bias = parameters.bias.is_some();
    let given = gradients.iter().flatten().map(|_| "r.");
    let names = ["r.", "."].into_iter().chain(vector(has_bias));
    let names = names.chain(of_statistics(parameters.kind).iter().copied()).chain(given);
    let results = ["r.", "r."].into_iter().chain(vector(addends.has_bias)).chain(["."]);
    // Of the vectors each rank has the terms of its rows. What comes as a sum is made: two addends would need it.
    let rule = Named::of(names, results.chain(vector(has_bias))).summed();
    let of_norm = (placed(parameters.weight.clone()), parameters.bias.clone().map(placed));
    let of_rows_before = (statistics.mean.map(placed), placed(statistics.reciprocal));
    let [of_hidden, of_output] = gradients.map(|gradient| gradient.map(placed));
    let operands = (placed(hidden), of_norm, of_rows_before, (of_hidden, of_output));
    let run = |(hidden, (weight, bias), (mean, reciprocal), (of_hidden, of_output)): Locals<B>, placed: &Placed| {
        let statistics = NormStatistics {
            mean: mean.map(local),
            reciprocal: local(reciprocal),
        };
        let rule = AddRule {
            has_bias: addends.has_bias,
            dropout: of_rows(&addends.dropout, placed),
        };
        let gradients = [of_hidden, of_output].map(|gradient| gradient.map(local));
        let parameters = with(parameters, weight, bias);
        let (addends, norm) = B::add_norm_backward(local(hidden), &parameters, statistics, gradients, &rule);
        let matrices = [addends.input, addends.residual].map(primitive).into_iter();
        let vectors = addends
            .bias
            .into_iter()
            .chain([norm.weight])
            .chain(norm.bias)
            .map(primitive);
        matrices.chain(vectors).map(Some).collect()
    };
    let results: Vec<Option<FloatSharded<B>>> = apply("add_norm_backward", operands, || Box::new(rule), run);
    let mut results = results.into_iter().flatten();
    let mut next = || results.next().expect("one for each name");
    let (input, residual) = (tensor(next()), tensor(next()));
    let bias = addends.has_bias.then(|| tensor(next()));
    let weight = tensor(next());
    let of_norm = NormGradients {
        input: Tensor::clone(&residual),
        weight,
        bias: has_bias.then(|| tensor(next())),
    };
    (AddendGradients { input, bias, residual }, of_norm)
}

/// A norm's weight and bias.
type OfNorm<B> = (FloatTensor<B>, Option<FloatTensor<B>>);
/// This rank's parts of what [`add_forward`] is given.
type AddLocals<B> = ((FloatTensor<B>, Option<FloatTensor<B>>, FloatTensor<B>), OfNorm<B>);
/// This rank's parts of what [`add_backward`] is given.
type Locals<B> = (
    FloatTensor<B>,
    OfNorm<B>,
    (Option<FloatTensor<B>>, FloatTensor<B>),
    (Option<FloatTensor<B>>, Option<FloatTensor<B>>),
);

fn with<B: CollectiveBackend>(
    parameters: &NormParameters<Sharded<B>>,
    weight: FloatTensor<B>,
    bias: Option<FloatTensor<B>>,
) -> NormParameters<B> {
    NormParameters {
        kind: parameters.kind,
        weight: local(weight),
        bias: bias.map(local),
        epsilon: parameters.epsilon,
    }
}
