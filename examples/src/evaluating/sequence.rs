//! [`Sequence`]: tokens of which the last are scored; their [`Score`]; and [`Asked`], all sequences of a task.

use std::ops::Range;
use std::sync::Arc;

use super::figures::Family;

/// Tokens, the last of which are predicted, each from all before it.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    tokens: Arc<[u32]>,
    range: Range<usize>,
    num_scored: usize,
}

/// How a model predicts the scored tokens of a sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Score {
    /// The logarithm of their probability, in nats.
    pub(super) log_probability: f64,
    /// Whether each is the most probable token at its place.
    pub(super) is_greedy: bool,
}

/// All that a task asks of a model.
pub(super) struct Asked {
    /// The pages, passages or questions.
    pub(super) num_items: usize,
    /// Those whose beginning the model does not see.
    pub(super) num_truncated: usize,
    /// The sequences to score.
    pub(super) sequences: Vec<Sequence>,
    /// Returns the figures from their scores.
    pub(super) judge: Judge,
}

/// Returns figures from the scores of all sequences.
pub(super) type Judge = Box<dyn FnOnce(&[Score]) -> Vec<Family>>;

impl Sequence {
    /// Takes a range of a text's tokens, the last `num_scored` of which are predicted.
    ///
    /// # Panics
    /// When none is predicted, or one without a token before it.
    pub(super) fn new(tokens: &Arc<[u32]>, range: Range<usize>, num_scored: usize) -> Self {
        assert!(
            (1..range.len()).contains(&num_scored) && range.end <= tokens.len(),
            "{num_scored} of the tokens {range:?} of {}",
            tokens.len()
        );
        Self {
            tokens: tokens.clone(),
            range,
            num_scored,
        }
    }

    /// The tokens that the model sees.
    pub(super) fn inputs(&self) -> &[u32] {
        &self.tokens[self.range.start..self.range.end - 1]
    }

    /// The successor of each of them.
    pub(super) fn targets(&self) -> &[u32] {
        &self.tokens[self.range.start + 1..self.range.end]
    }

    /// How many of the last targets are scored.
    pub(super) fn num_scored(&self) -> usize {
        self.num_scored
    }
}
