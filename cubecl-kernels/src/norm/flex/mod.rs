//! The norms on the CPU.

mod backward;
mod forward;

use burn::tensor::Tensor;
use burn_flex::{Flex, FlexTensor};

use super::{AddRule, AddendGradients, Addends, NormGradients, NormKind, NormParameters, NormStatistics, reference};
use crate::flex::math::Real;
use crate::flex::number::{Number, with_number};
use crate::flex::tensor::flat;
use backward::Given;
use forward::{add_forward_in, forward_in};

/// Returns the norm of each row, and the rows' statistics.
pub fn forward(input: Tensor<Flex, 2>, parameters: &NormParameters<Flex>) -> (Tensor<Flex, 2>, NormStatistics<Flex>) {
    with_number!(input.dtype(), T => forward_in::<T>(input, parameters))
}

/// Returns the gradients for the output's gradient.
pub fn backward(
    input: Tensor<Flex, 2>,
    parameters: &NormParameters<Flex>,
    statistics: NormStatistics<Flex>,
    gradient: Tensor<Flex, 2>,
) -> NormGradients<Flex> {
    let given = Given {
        hidden: input,
        parameters,
        statistics,
        of_hidden: None,
        addends: None,
    };
    with_number!(given.hidden.dtype(), T => given.backward::<T>(gradient)).1
}

/// Returns the sum, its norm, and the rows' statistics.
pub fn add_forward(
    addends: Addends<Flex>,
    parameters: &NormParameters<Flex>,
) -> ([Tensor<Flex, 2>; 2], NormStatistics<Flex>) {
    with_number!(addends.input.dtype(), T => add_forward_in::<T>(addends, parameters))
}

/// Returns the gradients of the addends and of the norm for the gradients of the sum, where it has one, and of the
/// norm.
pub fn add_backward(
    hidden: Tensor<Flex, 2>,
    parameters: &NormParameters<Flex>,
    statistics: NormStatistics<Flex>,
    gradients: [Option<Tensor<Flex, 2>>; 2],
    addends: &AddRule,
) -> (AddendGradients<Flex>, NormGradients<Flex>) {
    let [of_hidden, of_output] = gradients;
    let Some(of_output) = of_output else {
        return reference::add_backward(hidden, parameters, statistics, [of_hidden, None], addends);
    };
    let given = Given {
        hidden,
        parameters,
        statistics,
        of_hidden,
        addends: Some(addends),
    };
    let (input, norm) = with_number!(given.hidden.dtype(), T => given.backward::<T>(of_output));
    let (input, bias) = input.expect("there are addends");
    let addends = AddendGradients {
        input: input.unwrap_or_else(|| norm.input.clone()),
        bias,
        residual: norm.input.clone(),
    };
    (addends, norm)
}

/// A norm's parameters, as rows of a block read them.
struct Parameters {
    kind: NormKind,
    epsilon: f64,
    weight: FlexTensor,
    bias: Option<FlexTensor>,
}

impl Parameters {
    fn of(parameters: &NormParameters<Flex>) -> Self {
        Self {
            kind: parameters.kind,
            epsilon: parameters.epsilon,
            weight: flat(parameters.weight.clone()),
            bias: parameters.bias.clone().map(flat),
        }
    }

    /// The weight in the type that is computed in.
    #[inline(always)]
    fn weight<T: Number>(&self) -> Vec<T::Real> {
        T::read(self.weight.storage(), &mut Vec::new()).to_vec()
    }

    /// The bias likewise; zeros for one that there is not.
    #[inline(always)]
    fn bias<T: Number>(&self) -> Vec<T::Real> {
        match &self.bias {
            Some(bias) => T::read(bias.storage(), &mut Vec::new()).to_vec(),
            None => vec![T::Real::ZERO; self.weight.layout().num_elements()],
        }
    }
}
