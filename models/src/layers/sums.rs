//! [`Sums`]: the residual stream with sublayers' outputs added.

use burn::tensor::Tensor;
use burn_megatron::collectives::CollectiveBackend;
use burn_megatron::random::{Dropout, StepCoordinates};
use cubecl_kernels::Kernels;
use cubecl_kernels::bias_dropout_add::bias_dropout_add;
use cubecl_kernels::norm::Addends;

use super::{Norm, TokenContext};

/// A sublayer's output and the bias that is yet to be added to it.
pub(crate) type WithoutBias<B> = (Tensor<B, 2>, Option<Tensor<B, 1>>);

/// The sums of a block. Fused, bias and dropout are one operation with the sum, and so is the norm after it.
#[derive(Clone, Copy)]
pub(crate) struct Sums<'a> {
    kernels: Kernels,
    /// The places of the rows, where elements of them may fall.
    places: Option<&'a StepCoordinates>,
}

impl<'a> Sums<'a> {
    /// Returns the sums of a training step, or those of inference, where nothing is dropped.
    pub fn new(kernels: Kernels, tokens: Option<&'a TokenContext>) -> Self {
        let places = tokens.map(|tokens| &tokens.local);
        Self { kernels, places }
    }

    /// Returns `residual + dropout(output + bias)`.
    pub fn add<B: CollectiveBackend>(
        self,
        residual: Tensor<B, 2>,
        output: WithoutBias<B>,
        dropout: &Dropout,
    ) -> Tensor<B, 2> {
        match self.kernels {
            Kernels::Fused => {
                bias_dropout_add(self.addends(residual, output, dropout)).unwrap_or_else(|error| panic!("{error}"))
            }
            Kernels::Plain => {
                let output = match output {
                    (output, Some(bias)) => output + bias.unsqueeze(),
                    (output, None) => output,
                };
                residual
                    + match self.places {
                        Some(places) => dropout.forward(output, places),
                        None => output,
                    }
            }
        }
    }

    /// Returns that sum and its norm.
    pub fn add_and_norm<B: CollectiveBackend>(
        self,
        residual: Tensor<B, 2>,
        output: WithoutBias<B>,
        dropout: &Dropout,
        norm: &Norm<B>,
    ) -> [Tensor<B, 2>; 2] {
        match self.kernels {
            Kernels::Fused => norm.forward_of_sum(self.addends(residual, output, dropout)),
            Kernels::Plain => norm.forward_of_stream(self.add(residual, output, dropout)),
        }
    }

    fn addends<B: CollectiveBackend>(
        self,
        residual: Tensor<B, 2>,
        (input, bias): WithoutBias<B>,
        dropout: &Dropout,
    ) -> Addends<B> {
        let dropout = self
            .places
            .and_then(|places| dropout.of_rows::<B>(places, &input.device()));
        Addends {
            input,
            bias,
            residual,
            dropout,
        }
    }
}
