//! The forward and the backward pass as operations.

use burn::tensor::{Shape, Tensor};
#[cfg(feature = "cuda")]
use burn_cubecl::tensor::CubeTensor;
use burn_flex::FlexTensor;

#[cfg(feature = "cuda")]
use super::launch;
use super::projections::Projections;
use super::{Backward, BackwardInputs, Forward, flex, reference};
use crate::operation::{Of, Operation, Spec};
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

    fn reference(&self, (inputs, bias): Self::Inputs) -> Self::Outputs {
        reference::forward(inputs, bias, &self.0)
    }

    fn flex(&self, (inputs, bias): (Projections<FlexTensor>, Option<FlexTensor>)) -> (FlexTensor, FlexTensor) {
        flex::forward(inputs, bias, &self.0)
    }

    #[cfg(feature = "cuda")]
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

    fn reference(&self, inputs: BackwardInputs) -> Self::Outputs {
        reference::backward(inputs, self)
    }

    fn flex(&self, inputs: Of<BackwardInputs, FlexTensor>) -> Of<Self::Outputs, FlexTensor> {
        flex::backward(inputs, self)
    }

    #[cfg(feature = "cuda")]
    fn cube(&self, inputs: Of<BackwardInputs, CubeTensor>) -> Of<Self::Outputs, CubeTensor> {
        launch::backward(inputs, self)
    }
}
