//! The norms in burn's operations.

use burn::tensor::{Tensor, backend::Backend};

use super::{AddendGradients, Addends, NormGradients, NormKind, NormParameters, NormStatistics};
use crate::bias_dropout_add;
use crate::precision::{compute_type, narrow, widen, zeros};

/// Returns the norm of each row, and the rows' statistics.
pub fn forward<B: Backend>(input: Tensor<B, 2>, parameters: &NormParameters<B>) -> (Tensor<B, 2>, NormStatistics<B>) {
    let (dtype, [rows, columns]) = (input.dtype(), input.dims());
    if rows == 0 || columns == 0 {
        let nothing = || zeros([rows], &input.device(), compute_type(dtype));
        let statistics = NormStatistics {
            mean: (parameters.kind == NormKind::Layer).then(nothing),
            reciprocal: nothing(),
        };
        return (input, statistics);
    }
    let input = widen(input);
    let mean = match parameters.kind {
        NormKind::Layer => Some(input.clone().mean_dim(1)),
        NormKind::Rms => None,
    };
    let centred = match &mean {
        Some(mean) => input - mean.clone(),
        None => input,
    };
    let variance = (centred.clone() * centred.clone()).mean_dim(1);
    let reciprocal = variance.add_scalar(parameters.epsilon).sqrt().recip();
    let weight = widen(parameters.weight.clone()).unsqueeze::<2>();
    let mut output = centred * reciprocal.clone() * weight;
    if let Some(bias) = &parameters.bias {
        output = output + widen(bias.clone()).unsqueeze::<2>();
    }
    let statistics = NormStatistics {
        mean: mean.map(|mean| mean.squeeze_dim(1)),
        reciprocal: reciprocal.squeeze_dim(1),
    };
    (narrow(output, dtype), statistics)
}

/// Returns the gradients for the output's gradient.
pub fn backward<B: Backend>(
    input: Tensor<B, 2>,
    parameters: &NormParameters<B>,
    statistics: NormStatistics<B>,
    gradient: Tensor<B, 2>,
) -> NormGradients<B> {
    let (dtype, [rows, columns]) = (input.dtype(), input.dims());
    if rows == 0 || columns == 0 {
        let nothing = || zeros([columns], &input.device(), dtype);
        return NormGradients {
            weight: nothing(),
            bias: parameters.bias.is_some().then(nothing),
            input: gradient,
        };
    }
    let [input, gradient] = [input, gradient].map(widen);
    let reciprocal = statistics.reciprocal.unsqueeze_dim::<2>(1);
    let centred = match statistics.mean {
        Some(mean) => input - mean.unsqueeze_dim::<2>(1),
        None => input,
    };
    let normal = centred * reciprocal.clone();
    let weighted = gradient.clone() * widen(parameters.weight.clone()).unsqueeze::<2>();
    let along = (weighted.clone() * normal.clone()).mean_dim(1);
    let mut inner = weighted.clone() - normal.clone() * along;
    if parameters.kind == NormKind::Layer {
        inner = inner - weighted.mean_dim(1);
    }
    let sum = |rows: Tensor<B, 2>| narrow(rows.sum_dim(0).squeeze_dim::<1>(0), dtype);
    NormGradients {
        input: narrow(inner * reciprocal, dtype),
        weight: sum(gradient.clone() * normal),
        bias: parameters.bias.is_some().then(|| sum(gradient)),
    }
}

/// Returns the sum, its norm, and the rows' statistics.
pub fn add_forward<B: Backend>(
    addends: Addends<B>,
    parameters: &NormParameters<B>,
) -> ([Tensor<B, 2>; 2], NormStatistics<B>) {
    let hidden = bias_dropout_add::reference::forward(addends);
    let (output, statistics) = forward(hidden.clone(), parameters);
    ([hidden, output], statistics)
}

/// Returns the gradients of the addends and of the norm for the gradients of the sum, where it has one, and of the
/// norm.
pub fn add_backward<B: Backend>(
    hidden: Tensor<B, 2>,
    parameters: &NormParameters<B>,
    statistics: NormStatistics<B>,
    gradients: [Option<Tensor<B, 2>>; 2],
    addends: &super::AddRule,
) -> (AddendGradients<B>, NormGradients<B>) {
    let [of_hidden, of_output] = gradients;
    let of_output = of_output.unwrap_or_else(|| hidden.zeros_like());
    let mut norm = backward(hidden, parameters, statistics, of_output);
    if let Some(of_hidden) = of_hidden.filter(|of_hidden| !of_hidden.dims().contains(&0)) {
        norm.input = norm.input + of_hidden;
    }
    let addends = bias_dropout_add::reference::backward(norm.input.clone(), addends);
    (addends, norm)
}
