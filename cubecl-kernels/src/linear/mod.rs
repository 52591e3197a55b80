//! `input · weight + bias`, with a backward pass without transposed copies.
//!
//! On the CPU the bias is added while the product is in the cache. On CubeCL the product is burn's, of factors of 16
//! bits in their own type, added up in f32; there the sum with the bias is rounded a second time. On CUDA it may be
//! cuBLASLt's instead (feature `cublaslt`).

pub mod blocks;
pub mod destination;
mod factors;
mod flex;
pub mod host;
#[cfg(feature = "cubecl")]
mod launch;
mod operation;
mod product;
mod reference;
pub mod retained;

use burn::tensor::Tensor;

use self::destination::LinearSinks;
use self::retained::RetainedWeight;
use crate::error::{Check, KernelError};
use crate::tape::{inner, keep, record};
pub use operation::{affine, affine_backward};
pub use product::{add_product, multiplies_in_library};

/// Order of a weight's dimensions in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightOrder {
    /// `[d_input, d_output]`, as of burn's linear layer.
    InputFirst,
    /// `[d_output, d_input]`, as of an output head that is tied to an embedding.
    OutputFirst,
}

/// Terms of `input · weight + bias`.
#[derive(Clone, Debug)]
pub struct LinearInputs {
    /// `[rows, d_input]`
    pub input: Tensor<2>,
    /// `[d_input, d_output]` or `[d_output, d_input]`, by `order`.
    pub weight: Tensor<2>,
    /// `[d_output]`
    pub bias: Option<Tensor<1>>,
    /// The order of the weight's dimensions.
    pub order: WeightOrder,
}

/// Gradients of these terms, where they are wanted.
#[derive(Clone, Debug, Default)]
pub struct LinearGradients {
    /// `[rows, d_input]`
    pub input: Option<Tensor<2>>,
    /// In the weight's order.
    pub weight: Option<Tensor<2>>,
    /// `[d_output]`
    pub bias: Option<Tensor<1>>,
}

/// Gradients that are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinearWanted {
    /// The input's.
    pub input: bool,
    /// The weight's.
    pub weight: bool,
    /// The bias'.
    pub bias: bool,
}

/// Applies `input · weight + bias`.
///
/// # Shapes
/// - `input`: `[rows, d_input]`
/// - `weight`: `[d_input, d_output]`
/// - `bias`: `[d_output]`
/// - output: `[rows, d_output]`
///
/// # Errors
/// When shapes or types do not fit each other, or the type is not computed with.
pub fn linear(input: Tensor<2>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Result<Tensor<2>, KernelError> {
    run(LinearInputs {
        input,
        weight,
        bias,
        order: WeightOrder::InputFirst,
    })
}

/// Applies `input · weightᵀ`, to a weight in the layout of an embedding's.
///
/// # Shapes
/// - `input`: `[rows, d_input]`
/// - `weight`: `[d_output, d_input]`
/// - output: `[rows, d_output]`
///
/// # Errors
/// When shapes or types do not fit each other, or the type is not computed with.
pub fn linear_transposed(input: Tensor<2>, weight: Tensor<2>) -> Result<Tensor<2>, KernelError> {
    run(LinearInputs {
        input,
        weight,
        bias: None,
        order: WeightOrder::OutputFirst,
    })
}

fn run(inputs: LinearInputs) -> Result<Tensor<2>, KernelError> {
    let inputs = inputs.checked()?;
    let own = inputs.inner();
    let (x, order) = (keep(own.input.clone()), own.order);
    let weight = RetainedWeight::of(&inputs.weight);
    Ok(record_linear(inputs, affine(own), move |gradient, wanted, sinks| {
        destination::gradients(x.get(), weight.get(), order, gradient, wanted, sinks)
    }))
}

impl LinearInputs {
    /// Checks what [`linear`] and [`linear_transposed`] do, for those who run the product by themselves.
    ///
    /// # Errors
    /// As these.
    pub fn checked(self) -> Result<Self, KernelError> {
        let check = Check(match self.order {
            WeightOrder::InputFirst => "linear",
            WeightOrder::OutputFirst => "linear_transposed",
        });
        let (dtype, [_, d_input]) = (self.input.dtype(), self.input.dims());
        check.float("the input", dtype, &self.input.device())?;
        let weight = self.weight.dims();
        let (expected, d_output) = match self.order {
            WeightOrder::InputFirst => ([d_input, weight[1]], weight[1]),
            WeightOrder::OutputFirst => ([weight[0], d_input], weight[0]),
        };
        check.shape("the weight", &weight, &expected)?;
        check.same_type("the weight", self.weight.dtype(), dtype)?;
        if let Some(bias) = &self.bias {
            check.shape("the bias", &bias.dims(), &[d_output])?;
            check.same_type("the bias", bias.dtype(), dtype)?;
        }
        Ok(self)
    }

    /// Returns the same inputs, not tracked.
    pub fn inner(&self) -> Self {
        Self {
            input: inner(&self.input),
            weight: inner(&self.weight),
            bias: inner(&self.bias),
            order: self.order,
        }
    }
}

/// Returns `output`, a product of `inputs`, as a node of the graph, with `rule` for its backward step: from the
/// output's gradient, those that are wanted; those of weight and bias through [`destination::gradients`], with the
/// sinks that it is given.
pub fn record_linear(
    inputs: LinearInputs,
    output: Tensor<2>,
    rule: impl FnOnce(Tensor<2>, LinearWanted, LinearSinks) -> LinearGradients + Send + 'static,
) -> Tensor<2> {
    let LinearInputs {
        input, weight, bias, ..
    } = inputs;
    let sinks = LinearSinks::of(&weight, bias.as_ref());
    record((input, weight, bias), output, move |gradient, (input, weight, bias)| {
        let gradients = rule(gradient, LinearWanted { input, weight, bias }, sinks);
        (gradients.input, gradients.weight, gradients.bias)
    })
}
