//! [`Asked`]: what a task asks of a model.

use super::figures::Family;
use super::sequence::{Score, Sequence};

/// What a task asks of a model.
pub(super) struct Asked {
    /// The pages, passages or questions.
    pub(super) num_items: usize,
    /// Those whose beginning the model does not see.
    pub(super) num_truncated: usize,
    /// What is to be scored.
    pub(super) sequences: Vec<Sequence>,
    /// Returns the figures from their scores.
    pub(super) judge: Judge,
}

/// Returns figures from the scores of all sequences.
pub(super) type Judge = Box<dyn FnOnce(&[Score]) -> Vec<Family>>;
