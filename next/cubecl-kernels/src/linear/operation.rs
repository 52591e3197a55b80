//! The product and its gradients as operations.

use burn::tensor::Tensor;
#[cfg(feature = "cuda")]
use burn_cubecl::tensor::CubeTensor;
use burn_flex::FlexTensor;
#[cfg(feature = "cuda")]
use cubecl::client::Client;

use super::{LinearGradients, LinearInputs, LinearWanted, WeightOrder, flex, reference};
#[cfg(feature = "cuda")]
use super::{launch, product};
use crate::operation::{Of, Operation, Spec, apply};

/// Returns `input · weight + bias` of inputs that are not tracked and fit each other.
pub fn affine(inputs: LinearInputs) -> Tensor<2> {
    let LinearInputs {
        input,
        weight,
        bias,
        order,
    } = inputs;
    apply(&Affine(order), (input, weight, bias))
}

/// Returns the gradients that are wanted for the output's.
pub fn affine_backward(
    input: Tensor<2>,
    weight: Tensor<2>,
    order: WeightOrder,
    gradient: Tensor<2>,
    wanted: LinearWanted,
) -> LinearGradients {
    if wanted == LinearWanted::default() {
        return LinearGradients::default();
    }
    let (input, weight, bias) = apply(&AffineBackward { order, wanted }, [input, weight, gradient]);
    LinearGradients { input, weight, bias }
}

/// Input, weight and bias to `input · weight + bias`.
#[derive(Clone, Copy, Debug)]
struct Affine(WeightOrder);

impl Operation for Affine {
    type Inputs = (Tensor<2>, Tensor<2>, Option<Tensor<1>>);
    type Outputs = Tensor<2>;

    const NAME: &'static str = "linear";

    fn outputs(&self, ((mut shape, dtype), (weight, _), _): Of<Self::Inputs, Spec>) -> Spec {
        shape[1] = match self.0 {
            WeightOrder::InputFirst => weight[1],
            WeightOrder::OutputFirst => weight[0],
        };
        (shape, dtype)
    }

    fn reference(&self, (input, weight, bias): Self::Inputs) -> Tensor<2> {
        reference::forward(input, weight, bias, self.0)
    }

    fn flex(&self, (input, weight, bias): Of<Self::Inputs, FlexTensor>) -> FlexTensor {
        flex::forward(input, weight, bias, self.0)
    }

    #[cfg(feature = "cuda")]
    fn is_taken(&self, client: &Client, _inputs: Of<Self::Inputs, Spec>) -> bool {
        product::is_in_library(client)
    }

    #[cfg(feature = "cuda")]
    fn cube(&self, (input, weight, bias): Of<Self::Inputs, CubeTensor>) -> CubeTensor {
        launch::affine(input, weight, bias, self.0)
    }
}

/// Input, weight and the output's gradient to the gradients of input, weight and bias.
#[derive(Clone, Copy, Debug)]
struct AffineBackward {
    order: WeightOrder,
    wanted: LinearWanted,
}

impl Operation for AffineBackward {
    type Inputs = [Tensor<2>; 3];
    type Outputs = (Option<Tensor<2>>, Option<Tensor<2>>, Option<Tensor<1>>);

    const NAME: &'static str = "linear_backward";

    fn outputs(&self, [input, weight, (shape, dtype)]: [Spec; 3]) -> Of<Self::Outputs, Spec> {
        let LinearWanted {
            input: of_input,
            weight: of_weight,
            bias: of_bias,
        } = self.wanted;
        (
            of_input.then_some(input),
            of_weight.then_some(weight),
            of_bias.then(|| ([shape[1]].into(), dtype)),
        )
    }

    fn reference(&self, inputs: [Tensor<2>; 3]) -> Self::Outputs {
        reference::backward(inputs, self.order, self.wanted)
    }

    fn flex(&self, inputs: [FlexTensor; 3]) -> Of<Self::Outputs, FlexTensor> {
        flex::backward(inputs, self.order, self.wanted)
    }

    #[cfg(feature = "cuda")]
    fn is_taken(&self, client: &Client, _inputs: [Spec; 3]) -> bool {
        product::is_in_library(client)
    }

    #[cfg(feature = "cuda")]
    fn cube(&self, inputs: [CubeTensor; 3]) -> Of<Self::Outputs, CubeTensor> {
        launch::backward(inputs, self.order, self.wanted)
    }
}
