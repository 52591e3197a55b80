//! Layer norm and RMS norm, alone or with the sum of a residual stream before them.
//!
//! `x̂ = (x − mean) · r`, `y = x̂ · weight + bias` with `r = 1 / √(var + ε)`; for the RMS norm, mean and bias are 0 and
//! `var` is the mean of the squares. The forward pass keeps mean and `r` of each row, in the type that is computed in.
//! Variances are sums of squared distances from the mean, never differences of large sums.

mod flex;
pub mod host;
#[cfg(feature = "cubecl")]
mod kernel;
#[cfg(feature = "cubecl")]
mod launch;
mod operation;
mod reference;

use burn::tensor::{DType, Tensor};

use crate::accumulate::vectors::{VectorDestination, VectorSums};
pub use crate::bias_dropout_add::Addends;
use crate::error::{Check, KernelError};
use crate::operation::apply;
use crate::precision::zeros;
use crate::random::RowDropout;
use crate::sums::GradientPlace;
use crate::tape::{inner, keep, record, record_two};

/// Kind of a norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// Ba et al. 2016, arXiv:1607.06450.
    Layer,
    /// Zhang and Sennrich 2019, arXiv:1910.07467.
    Rms,
}

/// A norm's parameters.
#[derive(Clone, Debug)]
pub struct NormParameters {
    /// Layer norm or RMS norm.
    pub kind: NormKind,
    /// `[d_model]`, in the input's type.
    pub weight: Tensor<1>,
    /// `[d_model]`; none for an RMS norm.
    pub bias: Option<Tensor<1>>,
    /// Number added to the variance.
    pub epsilon: f64,
}

/// Each row's mean, for a layer norm, and the reciprocal of its standard deviation, `[rows]` each.
type Statistics = (Option<Tensor<1>>, Tensor<1>);

/// Tensors of the forward pass that a backward pass needs: the norm's input, its weight, and the rows' statistics.
type Saved = (Tensor<2>, Tensor<1>, Statistics);

/// Gradients of the norm's input, which is also the residual's, and of what is added to the residual, where dropout
/// makes that another one.
type RowGradients = (Tensor<2>, Option<Tensor<2>>);

/// Input, bias and residual of a sum, or rows alone, weight and bias of a norm to the sum, where there is a residual,
/// its norm, and the rows' statistics.
#[derive(Clone, Debug)]
struct Forward {
    kind: NormKind,
    epsilon: f64,
    dropout: Option<RowDropout>,
}

/// Gradients of the sum, if it has one, and of the norm to those of rows and of the vectors that there are: weight,
/// bias, and bias of the addend.
#[derive(Clone, Debug)]
struct Backward {
    has_bias: bool,
    has_addend_bias: bool,
    dropout: Option<RowDropout>,
}

/// [`Backward`] with the vectors' gradients added to sums.
#[derive(Clone, Debug)]
struct BackwardInto {
    rule: Backward,
    /// The places of the vectors.
    places: Vec<GradientPlace>,
}

/// Applies a layer norm over the last dimension.
///
/// # Shapes
/// - `input`: `[..., d_model]`
/// - `weight`, `bias`: `[d_model]`
/// - output: as `input`
///
/// # Errors
/// When shapes or types do not fit, or the epsilon is not a positive number.
pub fn layer_norm<const D: usize>(
    input: Tensor<D>,
    weight: Tensor<1>,
    bias: Option<Tensor<1>>,
    epsilon: f64,
) -> Result<Tensor<D>, KernelError> {
    let kind = NormKind::Layer;
    norm(
        "layer_norm",
        input,
        NormParameters {
            kind,
            weight,
            bias,
            epsilon,
        },
    )
}

/// Applies an RMS norm over the last dimension.
///
/// # Shapes
/// - `input`: `[..., d_model]`
/// - `weight`: `[d_model]`
/// - output: as `input`
///
/// # Errors
/// As [`layer_norm`].
pub fn rms_norm<const D: usize>(input: Tensor<D>, weight: Tensor<1>, epsilon: f64) -> Result<Tensor<D>, KernelError> {
    let kind = NormKind::Rms;
    norm(
        "rms_norm",
        input,
        NormParameters {
            kind,
            weight,
            bias: None,
            epsilon,
        },
    )
}

fn norm<const D: usize>(
    operation: &'static str,
    input: Tensor<D>,
    parameters: NormParameters,
) -> Result<Tensor<D>, KernelError> {
    let dims = input.dims();
    let columns = dims[D - 1];
    let rows = dims[..D - 1].iter().product();
    parameters.check(operation, columns, input.dtype())?;
    let input = input.reshape([rows, columns]);
    let forward = Forward::of(&parameters, None);
    let parents = (input, parameters.weight, parameters.bias);
    let (x, weight, bias) = inner(&parents);
    let (_, output, statistics) = apply(&forward, (x.clone(), None, None, weight.clone(), bias));
    let step = BackwardStep::of(&parents.1, parents.2.as_ref(), None, None);
    let x = keep(x);
    let output = record(parents, output, move |gradient, _| {
        let ((input, _), weight, bias, _) = step.run((x.get(), weight, statistics), [None, Some(gradient)]);
        (Some(input), Some(weight), bias)
    });
    Ok(output.reshape(dims))
}

/// Applies a norm to a residual stream that is used again after it. Returns the stream and its norm: one pass over both
/// gradients adds them up.
///
/// # Shapes
/// - `stream` and outputs: `[rows, d_model]`
///
/// # Errors
/// As [`layer_norm`].
pub fn norm_of_stream(stream: Tensor<2>, parameters: NormParameters) -> Result<[Tensor<2>; 2], KernelError> {
    parameters.check("norm_of_stream", stream.dims()[1], stream.dtype())?;
    let forward = Forward::of(&parameters, None);
    let parents = (stream, parameters.weight, parameters.bias);
    let (x, weight, bias) = inner(&parents);
    let (_, output, statistics) = apply(&forward, (x.clone(), None, None, weight.clone(), bias));
    let step = BackwardStep::of(&parents.1, parents.2.as_ref(), None, None);
    let kept = keep(x.clone());
    Ok(record_two(parents, [x, output], move |gradients, _| {
        let ((stream, _), weight, bias, _) = step.run((kept.get(), weight, statistics), gradients);
        (Some(stream), Some(weight), bias)
    }))
}

/// Adds to a residual stream, and applies a norm to the sum: `hidden = residual + dropout(input + bias)`, then
/// `norm(hidden)`. One pass over the inputs. Returns hidden and its norm.
///
/// # Shapes
/// - addends: see [`Addends`]
/// - outputs: `[rows, d_model]`
///
/// # Errors
/// As [`layer_norm`]; and when the dropout has other rows than the input.
pub fn add_norm(addends: Addends, parameters: NormParameters) -> Result<[Tensor<2>; 2], KernelError> {
    parameters.check("add_norm", addends.input.dims()[1], addends.input.dtype())?;
    addends.check("add_norm")?;
    let forward = Forward::of(&parameters, addends.dropout);
    let parents = (
        (addends.input, addends.bias, addends.residual),
        (parameters.weight, parameters.bias),
    );
    let ((input, addend_bias, residual), (weight, bias)) = inner(&parents);
    let inputs = (input, addend_bias, Some(residual), weight.clone(), bias);
    let (hidden, output, statistics) = apply(&forward, inputs);
    let hidden = hidden.expect("a sum with a residual is written");
    let ((_, addend_bias, _), (of_norm, bias)) = &parents;
    let step = BackwardStep::of(of_norm, bias.as_ref(), addend_bias.as_ref(), forward.dropout);
    let kept = keep(hidden.clone());
    Ok(record_two(parents, [hidden, output], move |gradients, _| {
        let ((residual, input), weight, bias, addend_bias) = step.run((kept.get(), weight, statistics), gradients);
        let input = input.unwrap_or_else(|| residual.clone());
        ((Some(input), addend_bias, Some(residual)), (Some(weight), bias))
    }))
}

/// Step of the graph: the backward pass, and where the gradients of its vectors go, if not to the graph.
struct BackwardStep {
    rule: Backward,
    destination: Option<VectorDestination>,
}

impl BackwardStep {
    fn of(
        weight: &Tensor<1>,
        bias: Option<&Tensor<1>>,
        addend_bias: Option<&Tensor<1>>,
        dropout: Option<RowDropout>,
    ) -> Self {
        Self {
            rule: Backward {
                has_bias: bias.is_some(),
                has_addend_bias: addend_bias.is_some(),
                dropout,
            },
            destination: VectorDestination::of([Some(weight), bias, addend_bias]),
        }
    }

    /// Returns the gradients of rows and of weight, bias and the addend's bias, for those of the sum and of the norm
    /// where they have one.
    fn run(
        self,
        saved: Saved,
        [of_hidden, of_output]: [Option<Tensor<2>>; 2],
    ) -> (RowGradients, Tensor<1>, Option<Tensor<1>>, Option<Tensor<1>>) {
        let Self { rule, destination } = self;
        let hidden = &saved.0;
        // Nothing may come through the norm.
        let of_output = of_output.unwrap_or_else(|| zeros(hidden.dims(), &hidden.device(), hidden.dtype()));
        let [has_bias, has_addend_bias] = [rule.has_bias, rule.has_addend_bias];
        let Some(destination) = destination else {
            let (rows, vectors) = apply(&rule, (saved, of_hidden, of_output));
            let mut vectors = vectors.into_iter();
            let mut next = || vectors.next().expect("a gradient for each vector");
            return (rows, next(), has_bias.then(&mut next), has_addend_bias.then(&mut next));
        };
        let nothing = destination.nothing(hidden);
        let rows = destination.add(|VectorSums { sums, places }| {
            apply(&BackwardInto { rule, places }, ((saved, of_hidden, of_output), sums))
        });
        let [bias, addend_bias] = [has_bias, has_addend_bias].map(|is_there| is_there.then(|| nothing.clone()));
        (rows, nothing, bias, addend_bias)
    }
}

impl NormParameters {
    /// Checks the parameters against the input's columns and type.
    fn check(&self, operation: &'static str, columns: usize, dtype: DType) -> Result<(), KernelError> {
        let check = Check(operation);
        check.float("the input", dtype, &self.weight.device())?;
        check.shape("the weight", &self.weight.dims(), &[columns])?;
        check.same_type("the weight", self.weight.dtype(), dtype)?;
        if let Some(bias) = &self.bias {
            check.shape("the bias", &bias.dims(), &[columns])?;
            check.same_type("the bias", bias.dtype(), dtype)?;
        }
        let is_epsilon = self.epsilon.is_finite() && self.epsilon > 0.0;
        check.value("epsilon", self.epsilon, is_epsilon, || "finite and above 0".to_owned())
    }
}
