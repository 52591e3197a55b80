//! The norms on the CPU.

mod backward;
mod forward;

use burn_flex::FlexTensor;

use super::{Backward, Forward};
use crate::bias_dropout_add::flex::Others;
use crate::flex::number::{Number, with_number};
use crate::flex::tensor::in_order;
use crate::operation::{Of, Operation};
use backward::backward_in;
use forward::{Parameters, add_forward_in, forward_in};

/// Returns the sum, where there is one, its norm, and the rows' statistics.
pub fn forward(
    forward: &Forward,
    (input, addend_bias, residual, weight, bias): Of<<Forward as Operation>::Inputs, FlexTensor>,
) -> Of<<Forward as Operation>::Outputs, FlexTensor> {
    let parameters = Parameters {
        kind: forward.kind,
        epsilon: forward.epsilon,
        weight: in_order(weight),
        bias: bias.map(in_order),
    };
    with_number!(input.dtype(), T => match residual {
        None => forward_in::<T>(input, &parameters),
        Some(residual) => {
            let others = Others::of(addend_bias, residual, forward.dropout.as_ref());
            add_forward_in::<T>(input, &others, &parameters)
        }
    })
}

/// Returns the gradients of rows and vectors for those of the sum, if it has one, and of the norm.
pub fn backward(
    rule: &Backward,
    inputs: Of<<Backward as Operation>::Inputs, FlexTensor>,
) -> Of<<Backward as Operation>::Outputs, FlexTensor> {
    with_number!(inputs.2.dtype(), T => backward_in::<T>(rule, inputs))
}

/// Returns a vector in the type that is computed in.
#[inline(always)]
fn read<T: Number>(vector: &FlexTensor) -> Vec<T::Real> {
    T::read(vector.storage(), &mut Vec::new()).to_vec()
}
