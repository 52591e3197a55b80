//! [`Sums`]: the residual stream with sublayers' outputs added.

use burn::tensor::Tensor;
use burn_megatron::random::{Dropout, StepCoordinates};
use cubecl_kernels::bias_dropout_add::bias_dropout_add;
use cubecl_kernels::norm::Addends;

use super::{Norm, TokenContext};

/// A sublayer's output and the bias that is yet to be added to it.
pub(crate) type WithoutBias = (Tensor<2>, Option<Tensor<1>>);

/// The sums of a block: bias and dropout are one operation with the sum, and so is the norm after it.
#[derive(Clone, Copy)]
pub(crate) struct Sums<'a> {
    /// The places of the rows, where elements of them may fall.
    places: Option<&'a StepCoordinates>,
}

impl<'a> Sums<'a> {
    /// Returns the sums of a training step, or those of inference, where nothing is dropped.
    pub fn new(tokens: Option<&'a TokenContext>) -> Self {
        Self {
            places: tokens.map(|tokens| &tokens.local),
        }
    }

    /// Returns `residual + dropout(output + bias)`.
    pub fn add(self, residual: Tensor<2>, output: WithoutBias, dropout: &Dropout) -> Tensor<2> {
        bias_dropout_add(self.addends(residual, output, dropout)).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Returns that sum and its norm.
    pub fn add_and_norm(
        self,
        residual: Tensor<2>,
        output: WithoutBias,
        dropout: &Dropout,
        norm: &Norm,
    ) -> [Tensor<2>; 2] {
        norm.forward_of_sum(self.addends(residual, output, dropout))
    }

    fn addends(self, residual: Tensor<2>, (input, bias): WithoutBias, dropout: &Dropout) -> Addends {
        let dropout = self.places.and_then(|places| dropout.of_rows(places, &input.device()));
        Addends {
            input,
            bias,
            residual,
            dropout,
        }
    }
}
