//! [`Encoder`]: texts to sequences that the model has positions for.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use burn_megatron_data::tokenizer::Tokenizer;

use super::sequence::Sequence;

/// Turns texts into sequences of at most `seq_length` tokens and one more, which is predicted only.
pub(super) struct Encoder<'a> {
    pub(super) tokenizer: &'a dyn Tokenizer,
    /// The most tokens that the model sees.
    pub(super) seq_length: usize,
}

/// A sequence, and whether its beginning was left out.
pub(super) struct Encoded {
    pub(super) sequence: Sequence,
    pub(super) is_truncated: bool,
}

impl Encoder<'_> {
    /// The tokens of a text, without any that begins or ends it.
    ///
    /// # Errors
    /// When a part of it has no token.
    pub(super) fn tokens(&self, text: &str) -> anyhow::Result<Vec<u32>> {
        let mut tokens = Vec::new();
        self.tokenizer.try_encode(text, &mut tokens)?;
        Ok(tokens)
    }

    /// A text and what follows it, as lm-evaluation-harness cuts them: white space at the end of the context belongs to
    /// the continuation; of the whole text's tokens the continuation has those after the first `n`, where `n` is what
    /// the context has by itself.
    pub(super) fn pair(&self, context: &str, continuation: &str) -> anyhow::Result<Encoded> {
        let before = context.trim_end();
        let mut tokens = self.tokens(&[context, continuation].concat())?;
        let context = self.tokens(before)?;
        ensure!(
            context.len() < tokens.len(),
            "{continuation:?} adds no token to the {} before it",
            context.len()
        );
        let continuation = tokens.split_off(context.len());
        self.continuation(context, continuation)
    }

    /// Tokens and those that follow them. What the model has no positions for is left out at the beginning; no context
    /// at all is the token that ends documents.
    ///
    /// # Errors
    /// When nothing follows, or more than the model sees, or there is no such token.
    pub(super) fn continuation(&self, context: Vec<u32>, continuation: Vec<u32>) -> anyhow::Result<Encoded> {
        let num_scored = continuation.len();
        ensure!(
            (1..=self.seq_length).contains(&num_scored),
            "what is predicted must have between 1 and {} tokens, got {num_scored}",
            self.seq_length
        );
        let mut tokens = if context.is_empty() {
            vec![self.end_of_document()?]
        } else {
            context
        };
        tokens.extend(continuation);
        // The last token is predicted only.
        let left_out = tokens.len().saturating_sub(self.seq_length + 1);
        let tokens: Arc<[u32]> = tokens[left_out..].into();
        Ok(Encoded {
            sequence: Sequence::new(&tokens, 0..tokens.len(), num_scored),
            is_truncated: left_out > 0,
        })
    }

    fn end_of_document(&self) -> anyhow::Result<u32> {
        let token = self.tokenizer.end_of_document();
        token.context("nothing is before what is predicted, and the tokenizer has no token that ends documents")
    }
}

#[cfg(test)]
mod tests {
    use burn_megatron_data::tokenizer::NullTokenizer;

    use super::*;

    fn encoded(context: &str, continuation: &str) -> anyhow::Result<(Vec<u32>, usize, bool)> {
        let tokenizer = NullTokenizer::new(9)?;
        let encoder = Encoder {
            tokenizer: &tokenizer,
            seq_length: 4,
        };
        let Encoded { sequence, is_truncated } = encoder.pair(context, continuation)?;
        let all = [&sequence.inputs()[..1], sequence.targets()].concat();
        Ok((all, sequence.num_scored(), is_truncated))
    }

    #[test]
    fn what_is_too_long_loses_its_beginning() -> anyhow::Result<()> {
        assert_eq!(encoded("1 2", " 3 4 5")?, (vec![1, 2, 3, 4, 5], 3, false));
        assert_eq!(encoded("1 2 3 ", "4 5 6")?, (vec![2, 3, 4, 5, 6], 3, true));
        // The whole context: the model sees the four tokens before the last.
        assert_eq!(encoded("1 2", " 3 4 5 6")?, (vec![2, 3, 4, 5, 6], 4, true));
        assert_eq!(encoded("", "3")?, (vec![9, 3], 1, false));
        Ok(())
    }

    #[test]
    fn what_cannot_be_predicted_is_refused() {
        for (context, continuation, expected) in [
            ("1", " ", "\" \" adds no token to the 1 before it"),
            (
                "1",
                " 1 2 3 4 5",
                "what is predicted must have between 1 and 4 tokens, got 5",
            ),
            ("1", " a", "NullTokenizer takes numbers from 0 to 9"),
        ] {
            let error = encoded(context, continuation).unwrap_err();
            assert!(format!("{error:#}").contains(expected), "{error:#}");
        }
    }
}
