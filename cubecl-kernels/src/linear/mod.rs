//! `input · weight + bias`, with a backward pass without transposed copies.
//!
//! On the CPU the bias is added while the product is in the cache. On CubeCL the product is burn's, of factors of 16
//! bits in their own type, added up in f32; there the sum with the bias is rounded a second time. On CUDA it may be
//! cuBLASLt's instead (feature `cublaslt`).

pub(crate) mod autodiff;
pub mod blocks;
pub mod destination;
pub(crate) mod flex;
pub mod host;
#[cfg(feature = "cubecl")]
pub(crate) mod launch;
pub(crate) mod product;
pub mod reference;
pub mod retained;

pub use autodiff::{inner_inputs, record_linear};
use burn::tensor::{Tensor, backend::Backend};

use crate::KernelBackend;
use crate::error::{Check, KernelError};

/// In which order a weight's dimensions are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightOrder {
    /// `[d_input, d_output]`, as of burn's linear layer.
    InputFirst,
    /// `[d_output, d_input]`, as of an output head that is tied to an embedding.
    OutputFirst,
}

/// What is multiplied and added.
#[derive(Clone, Debug)]
pub struct LinearInputs<B: Backend> {
    /// `[rows, d_input]`
    pub input: Tensor<B, 2>,
    /// As `order` says.
    pub weight: Tensor<B, 2>,
    /// `[d_output]`
    pub bias: Option<Tensor<B, 1>>,
    /// The order of the weight's dimensions.
    pub order: WeightOrder,
}

/// The gradients that are wanted.
#[derive(Clone, Debug)]
pub struct LinearGradients<B: Backend> {
    /// As the input.
    pub input: Option<Tensor<B, 2>>,
    /// As the weight.
    pub weight: Option<Tensor<B, 2>>,
    /// `[d_output]`
    pub bias: Option<Tensor<B, 1>>,
}

/// Which gradients are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinearWanted {
    /// That of the input.
    pub input: bool,
    /// That of the weight.
    pub weight: bool,
    /// That of the bias.
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
pub fn linear<B: KernelBackend>(
    input: Tensor<B, 2>,
    weight: Tensor<B, 2>,
    bias: Option<Tensor<B, 1>>,
) -> Result<Tensor<B, 2>, KernelError> {
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
pub fn linear_transposed<B: KernelBackend>(
    input: Tensor<B, 2>,
    weight: Tensor<B, 2>,
) -> Result<Tensor<B, 2>, KernelError> {
    run(LinearInputs {
        input,
        weight,
        bias: None,
        order: WeightOrder::OutputFirst,
    })
}

fn run<B: KernelBackend>(inputs: LinearInputs<B>) -> Result<Tensor<B, 2>, KernelError> {
    checked(inputs).map(B::affine)
}

/// Checks what [`linear`] and [`linear_transposed`] do, for those who run the product by themselves.
///
/// # Errors
/// As these.
pub fn checked<B: KernelBackend>(inputs: LinearInputs<B>) -> Result<LinearInputs<B>, KernelError> {
    let check = Check(match inputs.order {
        WeightOrder::InputFirst => "linear",
        WeightOrder::OutputFirst => "linear_transposed",
    });
    let (dtype, [_, d_input]) = (inputs.input.dtype(), inputs.input.dims());
    check.float::<B>("the input", dtype, &inputs.input.device())?;
    let weight = inputs.weight.dims();
    let (expected, d_output) = match inputs.order {
        WeightOrder::InputFirst => ([d_input, weight[1]], weight[1]),
        WeightOrder::OutputFirst => ([weight[0], d_input], weight[0]),
    };
    check.shape("the weight", &weight, &expected)?;
    check.same_type("the weight", inputs.weight.dtype(), dtype)?;
    if let Some(bias) = &inputs.bias {
        check.shape("the bias", &bias.dims(), &[d_output])?;
        check.same_type("the bias", bias.dtype(), dtype)?;
    }
    Ok(inputs)
}
