//! [`OutputHead`]: hidden states to losses, with few enough logits in one buffer.

use burn::tensor::{Int, Tensor};
use burn_megatron::collectives::ProcessGroup;
use burn_megatron::tensor_parallel::{VocabParallelEmbedding, vocab_parallel_cross_entropy};

/// The most bytes of logits in one buffer, about. On a GPU of 80 GiB, CubeCL's pools share a page of 5 GiB among
/// requests of up to 2.5 GiB; what is larger takes a page of 20 GiB.
const LOGIT_BYTES: usize = 1 << 30;

/// The layer that scores the vocabulary, on the last virtual stage.
pub struct OutputHead<'a> {
    /// A row per token of the vocabulary: the token embedding where it is tied.
    pub embedding: &'a VocabParallelEmbedding,
    /// The most tokens whose logits are in one buffer; those of 1 GiB if not given.
    pub chunk_tokens: Option<usize>,
    /// The ranks that share out the vocabulary.
    pub group: &'a ProcessGroup,
}

impl OutputHead<'_> {
    /// The cross-entropy of each token's target: `[tokens, padded_vocab_size / tp]` to `[tokens]`.
    ///
    /// # Communication
    /// That of [`vocab_parallel_cross_entropy`].
    ///
    /// # Panics
    /// When a collective fails.
    pub fn cross_entropy(&self, logits: Tensor<2>, targets: Tensor<1, Int>) -> Tensor<1> {
        vocab_parallel_cross_entropy(logits, targets, self.embedding.vocab_shard(), self.group)
    }

    /// Applies a function to the logits and targets of all tokens, token after token: hidden states, `[tokens,
    /// d_model]`, and targets, `[batch, seq]`, to what `of_logits` gives of each token.
    ///
    /// # Communication
    /// That of [`VocabParallelEmbedding::logits`], and of `of_logits` for each chunk.
    ///
    /// # Panics
    /// When a collective fails.
    pub fn in_chunks(
        &self,
        hidden: Tensor<2>,
        targets: Tensor<2, Int>,
        of_logits: impl Fn(Tensor<2>, Tensor<1, Int>) -> Tensor<1>,
    ) -> Tensor<1> {
        let tokens = targets.shape().num_elements();
        let targets = targets.reshape([tokens]);
        let row_bytes = self.embedding.vocab_shard().rows() * hidden.dtype().size();
        let chunk = self.chunk_tokens.unwrap_or_else(|| logit_chunk(tokens, row_bytes));
        if chunk >= tokens {
            of_logits(self.embedding.logits(hidden), targets)
        } else {
            self.embedding.losses_in_chunks(hidden, targets, chunk, of_logits)
        }
    }
}

/// Returns how many tokens have their logits in one buffer: all, or the fewest equal chunks of at most 1 GiB,
/// in multiples of 128 tokens, as products like them.
fn logit_chunk(tokens: usize, row_bytes: usize) -> usize {
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
