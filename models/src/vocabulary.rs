//! The padding of a vocabulary, which the tensor-parallel size must divide and which changes no result.

use burn_megatron::topology::{ParallelConfig, TopologyError};

/// Returns the size of a vocabulary with padding: what was asked for, or the next multiple of
/// `128 * tensor_parallel_size`, as Megatron-LM has it.
pub fn padded_vocab_size(vocab_size: usize, asked_for: Option<usize>, tensor_parallel_size: usize) -> usize {
    asked_for.unwrap_or_else(|| vocab_size.next_multiple_of(128 * tensor_parallel_size))
}

/// Checks that a vocabulary with padding holds the vocabulary, and that the layout divides it.
///
/// # Errors
/// The rule that is broken, the values, and the nearest valid ones.
pub fn check_padded_vocab(vocab_size: usize, padded: usize, parallel: &ParallelConfig) -> Result<(), TopologyError> {
    if padded < vocab_size {
        return Err(TopologyError::TooSmall {
            name: "the padded vocabulary",
            minimum: vocab_size,
            value: padded,
        });
    }
    parallel.check_tensor_divides("the padded vocabulary", padded)
}
