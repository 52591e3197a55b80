//! [`drop_rows`]: dropout outside the blocks.

use burn::tensor::Tensor;
use burn_megatron::random::{Dropout, StepCoordinates};
use cubecl_kernels::bias_dropout_add::bias_dropout_add;
use cubecl_kernels::norm::Addends;

/// Drops elements of tokens at these places, `[tokens, d_model]`: the fused sum draws the mask on the device.
pub fn drop_rows(dropout: &Dropout, hidden: Tensor<2>, places: &StepCoordinates) -> Tensor<2> {
    let Some(dropout) = dropout.of_rows(places, &hidden.device()) else {
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
