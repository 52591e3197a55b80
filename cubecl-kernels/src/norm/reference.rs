//! The norms in burn's operations.

use burn::tensor::Tensor;

use super::NormKind;
use super::{Backward, Forward};
use crate::bias_dropout_add;
use crate::operation::Operation;
use crate::precision::{compute_type, narrow, widen, zeros};

/// Returns the sum, where there is one, its norm, and the rows' statistics.
pub fn forward(
    forward: &Forward,
    (input, addend_bias, residual, weight, bias): <Forward as Operation>::Inputs,
) -> <Forward as Operation>::Outputs {
    let hidden = residual.map(|residual| {
        bias_dropout_add::reference::forward(input.clone(), addend_bias, residual, forward.dropout.as_ref())
    });
    let input = hidden.clone().unwrap_or(input);
    let (dtype, [rows, columns]) = (input.dtype(), input.dims());
    let is_layer = forward.kind == NormKind::Layer;
    if rows == 0 || columns == 0 {
        let nothing = || zeros([rows], &input.device(), compute_type(dtype));
        let statistics = (is_layer.then(nothing), nothing());
        return (hidden, input, statistics);
    }
    let input = widen(input);
    let mean = is_layer.then(|| input.clone().mean_dim(1));
    let centred = match &mean {
        Some(mean) => input - mean.clone(),
        None => input,
    };
    let variance = (centred.clone() * centred.clone()).mean_dim(1);
    let reciprocal = variance.add_scalar(forward.epsilon).sqrt().recip();
    let mut output = centred * reciprocal.clone() * widen(weight).unsqueeze::<2>();
    if let Some(bias) = bias {
        output = output + widen(bias).unsqueeze::<2>();
    }
    let statistics = (mean.map(|mean| mean.squeeze_dim(1)), reciprocal.squeeze_dim(1));
    (hidden, narrow(output, dtype), statistics)
}

/// Returns the gradients of rows and vectors for those of the sum, if it has one, and of the norm.
pub fn backward(
    rule: &Backward,
    ((hidden, weight, (mean, reciprocal)), of_hidden, of_output): <Backward as Operation>::Inputs,
) -> <Backward as Operation>::Outputs {
    let (dtype, [rows, columns]) = (hidden.dtype(), hidden.dims());
    if rows == 0 || columns == 0 {
        let vectors = vec![zeros([columns], &hidden.device(), dtype); rule.vectors()];
        let addend = rule.dropout.is_some().then(|| of_output.clone());
        return ((of_output, addend), vectors);
    }
    let [input, gradient] = [hidden, of_output].map(widen);
    let reciprocal = reciprocal.unsqueeze_dim::<2>(1);
    let centred = match &mean {
        Some(mean) => input - mean.clone().unsqueeze_dim::<2>(1),
        None => input,
    };
    let normal = centred * reciprocal.clone();
    let weighted = gradient.clone() * widen(weight).unsqueeze::<2>();
    let along = (weighted.clone() * normal.clone()).mean_dim(1);
    let mut inner = weighted.clone() - normal.clone() * along;
    if mean.is_some() {
        inner = inner - weighted.mean_dim(1);
    }
    let sum = |rows: Tensor<2>| narrow(rows.sum_dim(0).squeeze_dim::<1>(0), dtype);
    let mut vectors = vec![sum(gradient.clone() * normal)];
    vectors.extend(rule.has_bias.then(|| sum(gradient)));
    let mut result = narrow(inner * reciprocal, dtype);
    if let Some(of_hidden) = of_hidden {
        result = result + of_hidden;
    }
    let (addend, addend_bias) =
        bias_dropout_add::reference::backward(result.clone(), rule.has_addend_bias, rule.dropout.as_ref());
    vectors.extend(addend_bias);
    ((result, rule.dropout.as_ref().map(|_| addend)), vectors)
}
