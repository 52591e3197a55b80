//! The product and its gradients as operations.

use burn::tensor::Tensor;
#[cfg(feature = "cubecl")]
use burn_cubecl::tensor::CubeTensor;
use burn_flex::FlexTensor;
#[cfg(feature = "cubecl")]
use cubecl::client::Client;

use super::{LinearGradients, LinearInputs, LinearWanted, WeightOrder, flex, reference};
#[cfg(feature = "cubecl")]
use super::{launch, product};
use crate::operation::parts::{PartRule, is_of_ranks};
use crate::operation::{Of, Operation, Spec, apply};
use crate::precision::{narrow, widen};

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
    if is_of_ranks(&gradient.device()) {
        return backward_of_ranks(input, weight, order, gradient, wanted);
    }
    let (input, weight, bias) = apply(&AffineBackward { order, wanted }, [input, weight, gradient]);
    LinearGradients { input, weight, bias }
}

/// Returns each of the gradients by a rule of its own: the weight's and the input's may need the output's in different
/// places.
fn backward_of_ranks(
    input: Tensor<2>,
    weight: Tensor<2>,
    order: WeightOrder,
    gradient: Tensor<2>,
    wanted: LinearWanted,
) -> LinearGradients {
    let of_input = |gradient| LinearInputs {
        input: gradient,
        weight,
        bias: None,
        order: order.turned(),
    };
    let factors = |gradient| match order {
        WeightOrder::InputFirst => [input, gradient],
        WeightOrder::OutputFirst => [gradient, input],
    };
    let dtype = gradient.dtype();
    let of_bias = |gradient| narrow(widen(gradient).sum_dim(0).squeeze_dim(0), dtype);
    LinearGradients {
        input: wanted.input.then(|| affine(of_input(gradient.clone()))),
        weight: wanted.weight.then(|| apply(&WeightGradient, factors(gradient.clone()))),
        bias: wanted.bias.then(|| of_bias(gradient)),
    }
}

/// Two tensors of the same rows to `leftᵀ · right`.
#[derive(Clone, Copy, Debug)]
struct WeightGradient;

impl Operation for WeightGradient {
    type Inputs = [Tensor<2>; 2];
    type Outputs = Tensor<2>;

    const NAME: &'static str = "linear_weight_backward";

    fn outputs(&self, [(left, dtype), (right, _)]: [Spec; 2]) -> Spec {
        ([left[1], right[1]].into(), dtype)
    }

    fn reference(&self, [left, right]: [Tensor<2>; 2]) -> Tensor<2> {
        affine(LinearInputs {
            input: left.transpose(),
            weight: right,
            bias: None,
            order: WeightOrder::InputFirst,
        })
    }

    #[cfg(feature = "cubecl")]
    fn is_taken(&self, _client: &Client, _inputs: [Spec; 2]) -> bool {
        false
    }

    fn part_rule(&self, _inputs: [Spec; 2]) -> Option<PartRule> {
        Some(PartRule::LinearWeightGradient)
    }
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

    fn part_rule(&self, _inputs: Of<Self::Inputs, Spec>) -> Option<PartRule> {
        Some(match self.0 {
            WeightOrder::InputFirst => PartRule::Linear,
            WeightOrder::OutputFirst => PartRule::LinearTransposed,
        })
    }

    fn reference(&self, (input, weight, bias): Self::Inputs) -> Tensor<2> {
        reference::forward(input, weight, bias, self.0)
    }

    fn flex(&self, (input, weight, bias): Of<Self::Inputs, FlexTensor>) -> FlexTensor {
        flex::forward(input, weight, bias, self.0)
    }

    #[cfg(feature = "cubecl")]
    fn is_taken(&self, client: &Client, _inputs: Of<Self::Inputs, Spec>) -> bool {
        product::is_in_library(client)
    }

    #[cfg(feature = "cubecl")]
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

    fn outputs(&self, [(mut of_row, input_dtype), weight, (shape, dtype)]: [Spec; 3]) -> Of<Self::Outputs, Spec> {
        // Its rows may be on their way where its own gradient alone is wanted.
        of_row[0] = shape[0];
        let LinearWanted {
            input: of_input,
            weight: of_weight,
            bias: of_bias,
        } = self.wanted;
        (
            of_input.then_some((of_row, input_dtype)),
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

    #[cfg(feature = "cubecl")]
    fn is_taken(&self, client: &Client, _inputs: [Spec; 3]) -> bool {
        product::is_in_library(client)
    }

    #[cfg(feature = "cubecl")]
    fn cube(&self, inputs: [CubeTensor; 3]) -> Of<Self::Outputs, CubeTensor> {
        launch::backward(inputs, self.order, self.wanted)
    }
}
