//! [`drop_rows`]: dropout outside the blocks.

use burn::tensor::Tensor;
use burn_megatron::collectives::CollectiveBackend;
use burn_megatron::random::{Dropout, StepCoordinates};
use cubecl_kernels::Kernels;
use cubecl_kernels::bias_dropout_add::bias_dropout_add;
use cubecl_kernels::norm::Addends;

/// Drops elements of tokens at these places, `[tokens, d_model]`; the fused sum draws the mask on the device, which the
/// plain form uploads.
pub fn drop_rows<B: CollectiveBackend>(
    dropout: &Dropout,
    hidden: Tensor<B, 2>,
    places: &StepCoordinates,
    kernels: Kernels,
) -> Tensor<B, 2> {
    let dropout = match kernels {
        Kernels::Fused => dropout.of_rows::<B>(places, &hidden.device()),
        Kernels::Plain => return dropout.forward(hidden, places),
    };
    let Some(dropout) = dropout else {
        return hidden;
    };
    let dropped = bias_dropout_add(Addends {
        residual: hidden.zeros_like(),
        input: hidden,
        bias: None,
        dropout: Some(dropout),
    });
    dropped.unwrap_or_else(|error| panic!("{error}"))
}
