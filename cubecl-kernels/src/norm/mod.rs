//! Layer norm and RMS norm, alone or with the sum of a residual stream before them.
//!
//! `x̂ = (x − mean) · r`, `y = x̂ · weight + bias` with `r = 1 / √(var + ε)`; for the RMS norm, mean and bias are 0 and
//! `var` is the mean of the squares. The forward pass keeps mean and `r` of each row, in the type that is computed in.
//! Variances are sums of squared distances from the mean, never differences of large sums.

pub(crate) mod autodiff;
pub(crate) mod flex;
pub mod host;
#[cfg(feature = "cubecl")]
mod kernel;
#[cfg(feature = "cubecl")]
pub(crate) mod launch;
pub mod reference;

use burn::tensor::{DType, Tensor, backend::Backend};

use crate::KernelBackend;
use crate::accumulate::{GradientSums, VectorSums};
pub use crate::bias_dropout_add::{AddRule, AddendGradients, Addends};
use crate::error::{Check, KernelError};

/// Which norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// Ba et al. 2016, arXiv:1607.06450.
    Layer,
    /// Zhang and Sennrich 2019, arXiv:1910.07467.
    Rms,
}

/// A norm's parameters.
#[derive(Clone, Debug)]
pub struct NormParameters<B: Backend> {
    /// Which norm.
    pub kind: NormKind,
    /// `[d_model]`, in the input's type.
    pub weight: Tensor<B, 1>,
    /// `[d_model]`; none for an RMS norm.
    pub bias: Option<Tensor<B, 1>>,
    /// What is added to the variance.
    pub epsilon: f64,
}

/// What the forward pass keeps of each row, `[rows]` each.
#[derive(Clone, Debug)]
pub struct NormStatistics<B: Backend> {
    /// None for an RMS norm.
    pub mean: Option<Tensor<B, 1>>,
    /// The reciprocal of the standard deviation.
    pub reciprocal: Tensor<B, 1>,
}

/// Gradients of a norm.
#[derive(Clone, Debug)]
pub struct NormGradients<B: Backend> {
    /// `[rows, d_model]`
    pub input: Tensor<B, 2>,
    /// `[d_model]`
    pub weight: Tensor<B, 1>,
    /// `[d_model]`, where there is a bias.
    pub bias: Option<Tensor<B, 1>>,
}

/// Gradients of a norm, alone or with the sum before it, of which those of vectors were added to sums.
#[derive(Clone, Debug)]
pub struct NormAdded<B: Backend> {
    /// That of the norm's input, `[rows, d_model]`: of the residual, where there is a sum.
    pub input: Tensor<B, 2>,
    /// That of what is added to the residual, `[rows, d_model]`, where there is a sum.
    pub addend: Option<Tensor<B, 2>>,
    /// The sums.
    pub sums: GradientSums<B>,
}

/// Computes [`KernelBackend::norm_backward_into`] by the operations that return all gradients.
pub(crate) fn backward_into<B: KernelBackend>(
    hidden: Tensor<B, 2>,
    parameters: &NormParameters<B>,
    statistics: NormStatistics<B>,
    gradients: [Option<Tensor<B, 2>>; 2],
    addends: Option<&AddRule>,
    to: VectorSums<B>,
) -> NormAdded<B> {
    let Some(rule) = addends else {
        let [_, gradient] = gradients;
        let gradient = gradient.expect("a norm alone has the gradient of its output");
        let gradients = B::norm_backward(hidden, parameters, statistics, gradient);
        return NormAdded {
            input: gradients.input,
            addend: None,
            sums: to.add([gradients.weight].into_iter().chain(gradients.bias)),
        };
    };
    let (addends, norm) = B::add_norm_backward(hidden, parameters, statistics, gradients, rule);
    NormAdded {
        input: addends.residual,
        addend: Some(addends.input),
        sums: to.add([norm.weight].into_iter().chain(norm.bias).chain(addends.bias)),
    }
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
pub fn layer_norm<B: KernelBackend, const D: usize>(
    input: Tensor<B, D>,
    weight: Tensor<B, 1>,
    bias: Option<Tensor<B, 1>>,
    epsilon: f64,
) -> Result<Tensor<B, D>, KernelError> {
    let kind = NormKind::Layer;
    norm(
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
pub fn rms_norm<B: KernelBackend, const D: usize>(
    input: Tensor<B, D>,
    weight: Tensor<B, 1>,
    epsilon: f64,
) -> Result<Tensor<B, D>, KernelError> {
    let kind = NormKind::Rms;
    norm(
        input,
        NormParameters {
            kind,
            weight,
            bias: None,
            epsilon,
        },
    )
}

fn norm<B: KernelBackend, const D: usize>(
    input: Tensor<B, D>,
    parameters: NormParameters<B>,
) -> Result<Tensor<B, D>, KernelError> {
    let dims = input.dims();
    let columns = dims[D - 1];
    let rows = dims[..D - 1].iter().product();
    let operation = match parameters.kind {
        NormKind::Layer => "layer_norm",
        NormKind::Rms => "rms_norm",
    };
    check(operation, &parameters, columns, input.dtype())?;
    let output = B::norm(input.reshape([rows, columns]), parameters);
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
pub fn norm_of_stream<B: KernelBackend>(
    stream: Tensor<B, 2>,
    parameters: NormParameters<B>,
) -> Result<[Tensor<B, 2>; 2], KernelError> {
    check("norm_of_stream", &parameters, stream.dims()[1], stream.dtype())?;
    Ok(B::norm_of_stream(stream, parameters))
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
pub fn add_norm<B: KernelBackend>(
    addends: Addends<B>,
    parameters: NormParameters<B>,
) -> Result<[Tensor<B, 2>; 2], KernelError> {
    let ([rows, columns], dtype) = (addends.input.dims(), addends.input.dtype());
    check("add_norm", &parameters, columns, dtype)?;
    addends.check("add_norm", [rows, columns], dtype)?;
    Ok(B::add_norm(addends, parameters))
}

fn check<B: Backend>(
    operation: &'static str,
    parameters: &NormParameters<B>,
    columns: usize,
    dtype: DType,
) -> Result<(), KernelError> {
    let NormParameters {
        weight, bias, epsilon, ..
    } = parameters;
    let check = Check(operation);
    check.float::<B>("the input", dtype, &weight.device())?;
    check.shape("the weight", &weight.dims(), &[columns])?;
    check.same_type("the weight", weight.dtype(), dtype)?;
    if let Some(bias) = bias {
        check.shape("the bias", &bias.dims(), &[columns])?;
        check.same_type("the bias", bias.dtype(), dtype)?;
    }
    let is_epsilon = epsilon.is_finite() && *epsilon > 0.0;
    check.value("epsilon", *epsilon, is_epsilon, || "finite and above 0".to_owned())
}
