//! `Documents`: where the documents begin and end that are packed into the samples of a batch.

use std::sync::Arc;

use super::sizes::AttentionSizes;
use crate::error::{Check, KernelError};

/// The documents that each sample of a batch consists of, one after the other. A query sees keys of its own document
/// alone.
///
/// They are on the host, as [`RowDropout`](crate::random::RowDropout)'s places are: who packs documents knows there
/// where they end, they are checked without reading from the device, and their table is copied to the device once for
/// all attentions that share it. Kernels look up the documents of a block's first and last token, and work on the
/// blocks that these documents reach.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Documents {
    /// First token of the document, and the one after its last, of each token of each sample.
    bounds: Arc<[[u32; 2]]>,
    tokens: usize,
}

const CHECK: Check = Check("documents");

impl Documents {
    /// Returns the documents of samples of `tokens` tokens, of which `samples` has the lengths, in order: the
    /// differences of FlashAttention's `cu_seqlens`.
    ///
    /// # Errors
    /// When the lengths of a sample do not add up to `tokens`, or there are 2^32 tokens or more.
    pub fn from_lengths(tokens: usize, samples: &[Vec<usize>]) -> Result<Self, KernelError> {
        check_tokens(tokens)?;
        for (sample, lengths) in samples.iter().enumerate() {
            let sum = lengths.iter().fold(0usize, |sum, &length| sum.saturating_add(length));
            CHECK.value(
                format!("the sum of the lengths of sample {sample}"),
                sum as f64,
                sum == tokens,
                || format!("the number of its tokens, {tokens}"),
            )?;
        }
        let mut bounds = Vec::with_capacity(samples.len() * tokens);
        for lengths in samples {
            let mut start = 0;
            for &length in lengths {
                let end = start + length;
                bounds.extend(std::iter::repeat_n([start as u32, end as u32], length));
                start = end;
            }
        }
        Ok(Self {
            bounds: bounds.into(),
            tokens,
        })
    }

    /// Returns the documents of samples of `tokens` tokens; `starts` has the first token of the document of each token
    /// of each sample, `[samples * tokens]`, a number in the sample.
    ///
    /// # Errors
    /// When the starts are not of whole samples, a token's start is neither that of the token before nor the token
    /// itself, or there are 2^32 tokens or more.
    pub fn from_starts(tokens: usize, starts: &[usize]) -> Result<Self, KernelError> {
        check_tokens(tokens)?;
        let is_whole = starts.len().is_multiple_of(tokens.max(1));
        CHECK.value("the number of starts", starts.len() as f64, is_whole, || {
            format!("a multiple of that of a sample's tokens, {tokens}")
        })?;
        let samples = starts.chunks_exact(tokens.max(1)).enumerate();
        let lengths = samples.map(|(sample, starts)| lengths_of(sample, starts));
        Self::from_lengths(tokens, &lengths.collect::<Result<Vec<_>, _>>()?)
    }

    /// Returns the documents of samples of `tokens` tokens, of which `lengths` has the numbers before their padding.
    /// Padding is a document of its own, which the text does not see.
    ///
    /// # Errors
    /// When a sample is longer than `tokens`, or there are 2^32 tokens or more.
    pub fn of_padded(tokens: usize, lengths: &[usize]) -> Result<Self, KernelError> {
        let samples = lengths
            .iter()
            .map(|&length| vec![length, tokens.saturating_sub(length)]);
        Self::from_lengths(tokens, &samples.collect::<Vec<_>>())
    }

    /// Returns the documents of some of the samples.
    ///
    /// # Panics
    /// When there are fewer samples.
    pub fn of_samples(&self, samples: std::ops::Range<usize>) -> Self {
        Self {
            bounds: self.bounds[samples.start * self.tokens..samples.end * self.tokens].into(),
            tokens: self.tokens,
        }
    }

    /// Checks that these are the documents of an attention of tokens to themselves.
    pub(super) fn check(&self, check: Check, sizes: AttentionSizes) -> Result<(), KernelError> {
        let AttentionSizes {
            batch, queries, keys, ..
        } = sizes;
        check.value("the number of keys", keys as f64, queries == keys, || {
            format!("that of the queries, whose documents they are, {queries}")
        })?;
        let tokens = self.tokens;
        check.value("the tokens of the documents", tokens as f64, tokens == queries, || {
            format!("the number of queries, {queries}")
        })?;
        let all = self.bounds.len();
        let is_batch = all == batch * queries;
        check.value("the tokens of all samples' documents", all as f64, is_batch, || {
            format!("those of the batch, {}", batch * queries)
        })
    }

    /// First token of the document, and the one after its last, of each token of each sample.
    #[cfg(feature = "cubecl")]
    pub(super) fn bounds(&self) -> &Arc<[[u32; 2]]> {
        &self.bounds
    }

    /// The first token of a token's document and the one after its last.
    pub(super) fn of(&self, sample: usize, token: usize) -> [usize; 2] {
        self.bounds[sample * self.tokens + token].map(|bound| bound as usize)
    }
}

fn check_tokens(tokens: usize) -> Result<(), KernelError> {
    let is_counted = u32::try_from(tokens).is_ok();
    CHECK.value("the number of tokens", tokens as f64, is_counted, || {
        format!("at most {}", u32::MAX)
    })
}

/// The lengths of a sample's documents.
fn lengths_of(sample: usize, starts: &[usize]) -> Result<Vec<usize>, KernelError> {
    let mut lengths = Vec::new();
    let mut before = 0;
    for (token, &start) in starts.iter().enumerate() {
        let what = || format!("the start of token {token} of sample {sample}");
        CHECK.value(
            what(),
            start as f64,
            start == token || (start == before && token > 0),
            || match token {
                0 => "0".to_owned(),
                _ => format!("{before}, as of the token before, or {token}"),
            },
        )?;
        if start == token {
            lengths.push(0);
        }
        before = start;
        *lengths.last_mut().expect("the first token begins a document") += 1;
    }
    Ok(lengths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_and_lengths_are_the_same_documents() {
        let lengths = Documents::from_lengths(5, &[vec![1, 0, 3, 1], vec![5]]).unwrap();
        let starts = Documents::from_starts(5, &[0, 1, 1, 1, 4, 0, 0, 0, 0, 0]).unwrap();
        assert_eq!(lengths, starts);
        let bounds = (0..5).map(|token| lengths.of(0, token));
        assert_eq!(bounds.collect::<Vec<_>>(), [[0, 1], [1, 4], [1, 4], [1, 4], [4, 5]]);
        assert_eq!(lengths.of(1, 4), [0, 5]);
    }

    #[test]
    fn what_are_no_documents_is_refused() {
        let message = |result: Result<Documents, KernelError>| result.unwrap_err().to_string();
        let beyond = message(Documents::from_lengths(5, &[vec![5], vec![2, 4]]));
        assert!(
            beyond.contains("sample 1 must be the number of its tokens, 5, got 6"),
            "{beyond}"
        );
        let overflow = message(Documents::from_lengths(5, &[vec![usize::MAX, 6]]));
        assert!(overflow.contains("sample 0"), "{overflow}");
        let short = message(Documents::from_lengths(5, &[vec![4]]));
        assert!(short.contains("got 4"), "{short}");
        let back = message(Documents::from_starts(3, &[0, 1, 0]));
        assert!(
            back.contains("token 2 of sample 0 must be 1, as of the token before, or 2, got 0"),
            "{back}"
        );
        let ahead = message(Documents::from_starts(3, &[0, 2, 2]));
        assert!(ahead.contains("token 1 of sample 0 must be 0"), "{ahead}");
        let first = message(Documents::from_starts(2, &[0, 0, 1, 1]));
        assert!(first.contains("token 0 of sample 1 must be 0, got 1"), "{first}");
        let part = message(Documents::from_starts(3, &[0, 0, 0, 0]));
        assert!(
            part.contains("a multiple of that of a sample's tokens, 3, got 4"),
            "{part}"
        );
    }
}
