//! What models do with the rows of their tokens outside the blocks: dropout, and logits in chunks.

use burn::tensor::Tensor;
use burn_megatron::collectives::CollectiveBackend;
use burn_megatron::random::{Dropout, StepCoordinates};
use cubecl_kernels::Kernels;
use cubecl_kernels::bias_dropout_add::bias_dropout_add;
use cubecl_kernels::norm::Addends;

/// The most bytes of logits in one buffer, about. On a GPU of 80 GiB, CubeCL's pools share a page of 5 GiB among
/// requests of up to 2.5 GiB; what is larger takes a page of 20 GiB.
const LOGIT_BYTES: usize = 1 << 30;

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

/// Returns how many tokens have their logits in one buffer: all, or the fewest equal chunks of at most 1 GiB,
/// in multiples of 128 tokens, as products like them.
pub fn logit_chunk(tokens: usize, row_bytes: usize) -> usize {
    let chunks = (tokens * row_bytes).div_ceil(LOGIT_BYTES).max(1);
    match chunks {
        1 => tokens,
        _ => tokens.div_ceil(chunks).next_multiple_of(128),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logits_above_a_gibibyte_are_cut_into_the_fewest_equal_chunks() {
        let row_bytes = 2 * 50304;
        // Micro-batches of 4, 8 and 16 samples of 2048 tokens: 0.8, 1.5 and 3.1 GiB.
        assert_eq!(logit_chunk(8192, row_bytes), 8192);
        assert_eq!(logit_chunk(16384, row_bytes), 8192);
        assert_eq!(logit_chunk(32768, row_bytes), 8192);
        // 10672 tokens have 1 GiB.
        assert_eq!(logit_chunk(10672, row_bytes), 10672);
        assert_eq!(logit_chunk(10673, row_bytes), 5376);
        assert_eq!(logit_chunk(0, row_bytes), 0);
        for tokens in [10_673, 12_345, 99_999] {
            let chunk = logit_chunk(tokens, row_bytes);
            assert!(
                (chunk - 127) * row_bytes <= LOGIT_BYTES,
                "{tokens} tokens in chunks of {chunk}"
            );
        }
    }
}
