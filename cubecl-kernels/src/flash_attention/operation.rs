//! The forward and the backward pass as operations.

use burn::tensor::{Shape, Tensor};
#[cfg(feature = "cubecl")]
use burn_cubecl::tensor::CubeTensor;
use burn_flex::FlexTensor;

#[cfg(feature = "cubecl")]
use super::launch;
use super::projections::Projections;
use super::{Backward, BackwardInputs, Forward, flex, reference};
use crate::operation::parts::{Names, Part, PartRule};
use crate::operation::{Of, Operation, Spec, apply};
use crate::precision::compute_type;

impl Operation for Forward {
    /// With the relative bias, `[heads, queries + keys - 1]`.
    type Inputs = (Projections<Tensor<4>>, Option<Tensor<2>>);
    /// The output, `[batch, queries, heads, d_head]`, and `log Σ exp(scale · q kᵀ + bias)` over the keys that a query
    /// sees, `[batch, heads, queries]`, in the type that is computed in; −∞ where it sees none.
    type Outputs = (Tensor<4>, Tensor<3>);

    const NAME: &'static str = "flash_attention";

    fn outputs(&self, (inputs, _): (Projections<Spec>, Option<Spec>)) -> (Spec, Spec) {
        let sizes = inputs.sizes(|(shape, _)| shape.dims());
        let dtype = inputs.first().1;
        let output = Shape::from([sizes.batch, sizes.queries, sizes.heads, sizes.d_head]);
        let log_sum_exp = Shape::from([sizes.batch, sizes.heads, sizes.queries]);
        ((output, dtype), (log_sum_exp, compute_type(dtype)))
    }

    fn part_rule(&self, (inputs, bias): (Projections<Spec>, Option<Spec>)) -> Option<PartRule> {
        let [of_heads, of_sums, of_bias] = inputs.names();
        let inputs = (inputs.map(|_| of_heads), bias.map(|_| of_bias));
        Names::of::<Self>(inputs, (of_heads, of_sums)).rule()
    }

    fn run_part(&self, inputs: Self::Inputs, part: &dyn Part) -> Self::Outputs {
        apply(&Self(self.0.of_part(inputs.0.first().dims()[1], part)), inputs)
    }

    fn reference(&self, (inputs, bias): Self::Inputs) -> Self::Outputs {
        reference::forward(inputs, bias, &self.0)
    }

    fn flex(&self, (inputs, bias): (Projections<FlexTensor>, Option<FlexTensor>)) -> (FlexTensor, FlexTensor) {
        flex::forward(inputs, bias, &self.0)
    }

    #[cfg(feature = "cubecl")]
    fn cube(&self, (inputs, bias): (Projections<CubeTensor>, Option<CubeTensor>)) -> (CubeTensor, CubeTensor) {
        launch::forward(inputs, bias, &self.0)
    }
}

impl Operation for Backward {
    type Inputs = BackwardInputs;
    /// The gradients of the forward pass's inputs.
    type Outputs = (Projections<Tensor<4>>, Option<Tensor<2>>);

    const NAME: &'static str = "flash_attention_backward";

    fn outputs(&self, (inputs, bias, ..): Of<BackwardInputs, Spec>) -> Of<Self::Outputs, Spec> {
        (inputs, bias.filter(|_| self.is_bias_wanted))
    }

    /// The gradient of the bias is a sum over the samples, of which a rank with some of them has a term.
    fn part_rule(&self, (inputs, bias, ..): Of<BackwardInputs, Spec>) -> Option<PartRule> {
        let [of_heads, of_sums, of_bias] = inputs.names();
        let (inputs, bias) = (inputs.map(|_| of_heads), bias.map(|_| of_bias));
        let outputs = (inputs.clone(), bias.filter(|_| self.is_bias_wanted));
        let inputs = (inputs, bias, of_heads, of_sums, of_heads);
        Names::of::<Self>(inputs, outputs).linear_in_last().rule()
    }

    fn run_part(&self, inputs: BackwardInputs, part: &dyn Part) -> Self::Outputs {
        let own = Self {
            options: self.options.of_part(inputs.0.first().dims()[1], part),
            ..*self
        };
        apply(&own, inputs)
    }

    fn reference(&self, inputs: BackwardInputs) -> Self::Outputs {
        reference::backward(inputs, self)
    }

    fn flex(&self, inputs: Of<BackwardInputs, FlexTensor>) -> Of<Self::Outputs, FlexTensor> {
        flex::backward(inputs, self)
    }

    #[cfg(feature = "cubecl")]
    fn cube(&self, inputs: Of<BackwardInputs, CubeTensor>) -> Of<Self::Outputs, CubeTensor> {
        launch::backward(inputs, self)
    }
}
