//! `residual + dropout(input + bias)`: the end of a transformer's sublayer, in one pass.

pub(crate) mod flex;
pub mod host;
#[cfg(feature = "cubecl")]
mod kernel;
#[cfg(feature = "cubecl")]
mod launch;
pub(crate) mod reference;

use burn::tensor::Tensor;
#[cfg(feature = "cubecl")]
use burn_cubecl::tensor::CubeTensor;
use burn_flex::FlexTensor;
#[cfg(feature = "cubecl")]
use cubecl::client::Client;

use crate::accumulate::vectors::{VectorDestination, VectorSums, add_each};
use crate::error::{Check, KernelError};
use crate::operation::parts::{Names, Part, PartRule, of_rows};
use crate::operation::{Of, Operation, Spec, apply};
use crate::random::RowDropout;
#[cfg(feature = "cubecl")]
use crate::sums::are_written;
use crate::sums::{GradientPlace, GradientSums};
use crate::tape::{inner, record};

/// Terms of the sum `residual + dropout(input + bias)`.
#[derive(Clone, Debug)]
pub struct Addends {
    /// `[rows, d_model]`
    pub input: Tensor<2>,
    /// `[d_model]`
    pub bias: Option<Tensor<1>>,
    /// `[rows, d_model]`
    pub residual: Tensor<2>,
    /// None outside training.
    pub dropout: Option<RowDropout>,
}

impl Addends {
    /// Checks that shapes and types fit each other, and dropout the rows.
    pub(crate) fn check(&self, operation: &'static str) -> Result<(), KernelError> {
        let check = Check(operation);
        let ([rows, columns], dtype) = (self.input.dims(), self.input.dtype());
        check.float("the input", dtype, &self.input.device())?;
        check.shape("the residual", &self.residual.dims(), &[rows, columns])?;
        check.same_type("the residual", self.residual.dtype(), dtype)?;
        if let Some(bias) = &self.bias {
            check.shape("the bias", &bias.dims(), &[columns])?;
            check.same_type("the bias", bias.dtype(), dtype)?;
        }
        match &self.dropout {
            Some(dropout) => dropout.check(operation, rows, 1, columns),
            None => Ok(()),
        }
    }
}

/// Adds to a residual stream.
///
/// # Shapes
/// - addends: see [`Addends`]
/// - output: `[rows, d_model]`
///
/// # Errors
/// When shapes or types do not fit each other, or the dropout has other rows than the input.
pub fn bias_dropout_add(addends: Addends) -> Result<Tensor<2>, KernelError> {
    addends.check("bias_dropout_add")?;
    let Addends {
        input,
        bias,
        residual,
        dropout,
    } = addends;
    let (has_bias, destination) = (bias.is_some(), VectorDestination::of([bias.as_ref()]));
    let parents = (input, bias, residual);
    let output = apply(&Forward(dropout.clone()), inner(&parents));
    Ok(record(parents, output, move |gradient, _| {
        let residual = Some(gradient.clone());
        let Some(destination) = destination else {
            let (input, bias) = apply(&Backward { has_bias, dropout }, gradient);
            return (Some(input), bias, residual);
        };
        let nothing = destination.nothing(&gradient);
        let input =
            destination.add(|VectorSums { sums, places }| apply(&BackwardInto { dropout, places }, (gradient, sums)));
        (Some(input), Some(nothing), residual)
    }))
}

/// Input, bias and residual to the sum.
#[derive(Clone, Debug)]
struct Forward(Option<RowDropout>);

impl Operation for Forward {
    type Inputs = (Tensor<2>, Option<Tensor<1>>, Tensor<2>);
    type Outputs = Tensor<2>;

    const NAME: &'static str = "bias_dropout_add";

    fn outputs(&self, (input, ..): Of<Self::Inputs, Spec>) -> Spec {
        input
    }

    fn part_rule(&self, (_, bias, _): Of<Self::Inputs, Spec>) -> Option<PartRule> {
        Names::of::<Self>(("r.", bias.map(|_| "."), "r."), "r.").rule()
    }

    fn run_part(&self, inputs: Self::Inputs, part: &dyn Part) -> Tensor<2> {
        apply(&Self(of_rows(&self.0, part)), inputs)
    }

    fn reference(&self, (input, bias, residual): Self::Inputs) -> Tensor<2> {
        reference::forward(input, bias, residual, self.0.as_ref())
    }

    fn flex(&self, (input, bias, residual): Of<Self::Inputs, FlexTensor>) -> FlexTensor {
        flex::forward(input, bias, residual, self.0.as_ref())
    }

    #[cfg(feature = "cubecl")]
    fn cube(&self, (input, bias, residual): Of<Self::Inputs, CubeTensor>) -> CubeTensor {
        launch::forward(input, bias, residual, self.0.as_ref())
    }
}

/// The sum's gradient to the input's, and the bias' if there is one. The residual's is the sum's.
#[derive(Clone, Debug)]
pub(crate) struct Backward {
    pub has_bias: bool,
    pub dropout: Option<RowDropout>,
}

impl Operation for Backward {
    type Inputs = Tensor<2>;
    type Outputs = (Tensor<2>, Option<Tensor<1>>);

    const NAME: &'static str = "bias_dropout_add_backward";

    fn outputs(&self, gradient: Spec) -> (Spec, Option<Spec>) {
        let (shape, dtype) = &gradient;
        let bias = self.has_bias.then(|| ([shape[1]].into(), *dtype));
        (gradient, bias)
    }

    fn part_rule(&self, _gradient: Spec) -> Option<PartRule> {
        let bias = self.has_bias.then_some(".");
        Names::of::<Self>("r.", ("r.", bias)).summed().rule()
    }

    fn run_part(&self, gradient: Tensor<2>, part: &dyn Part) -> Self::Outputs {
        let own = Self {
            dropout: of_rows(&self.dropout, part),
            ..*self
        };
        apply(&own, gradient)
    }

    fn reference(&self, gradient: Tensor<2>) -> Self::Outputs {
        reference::backward(gradient, self.has_bias, self.dropout.as_ref())
    }

    fn flex(&self, gradient: FlexTensor) -> (FlexTensor, Option<FlexTensor>) {
        flex::backward(gradient, self.has_bias, self.dropout.as_ref())
    }

    #[cfg(feature = "cubecl")]
    fn cube(&self, gradient: CubeTensor) -> (CubeTensor, Option<CubeTensor>) {
        let dtype = gradient.dtype;
        let (input, partials) = launch::backward(gradient, self.has_bias, self.dropout.as_ref());
        (input, partials.and_then(|partials| partials.sum(dtype).pop()))
    }
}

/// [`Backward`] of a sum with a bias, whose gradient is added to sums.
#[derive(Clone, Debug)]
pub(crate) struct BackwardInto {
    pub dropout: Option<RowDropout>,
    /// The bias' place.
    pub places: Vec<GradientPlace>,
}

impl Operation for BackwardInto {
    type Inputs = (Tensor<2>, GradientSums);
    type Outputs = (Tensor<2>, GradientSums);

    const NAME: &'static str = "bias_dropout_add_backward_into";

    fn outputs(&self, inputs: (Spec, [Spec; 2])) -> (Spec, [Spec; 2]) {
        inputs
    }

    fn reference(&self, (gradient, sums): Self::Inputs) -> Self::Outputs {
        let rule = Backward {
            has_bias: true,
            dropout: self.dropout.clone(),
        };
        let (input, bias) = apply(&rule, gradient);
        (input, add_each(sums, &self.places, bias))
    }

    #[cfg(feature = "cubecl")]
    fn is_taken(&self, _client: &Client, (_, sums): (Spec, [Spec; 2])) -> bool {
        are_written(&sums)
    }

    #[cfg(feature = "cubecl")]
    fn cube(&self, (gradient, sums): (CubeTensor, [CubeTensor; 2])) -> (CubeTensor, [CubeTensor; 2]) {
        let (input, partials) = launch::backward(gradient, true, self.dropout.as_ref());
        (input, partials.expect("there is a bias").add_to(sums, &self.places))
    }
}
