//! [`Asked`]: what a task asks of a model.

use anyhow::Context as _;

use super::data::{Content, TaskData};
use super::encoding::Encoder;
use super::figures::Family;
use super::sequence::{Score, Sequence};
use super::{lambada, multiple_choice, wikitext};
use crate::arguments::TaskArguments;

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

/// Returns what the data of a task asks.
///
/// # Errors
/// When the text does not fit the tokenizer or the model, naming file and line.
pub(super) fn ask(data: &TaskData, arguments: &TaskArguments, encoder: &Encoder) -> anyhow::Result<Asked> {
    let asked = match &data.content {
        Content::Text(text) => {
            let advance = arguments.overlapping_eval(encoder.seq_length)?;
            wikitext::ask(text, advance, encoder)
        }
        Content::Passages(passages) => lambada::ask(passages, arguments.strict_lambada, encoder),
        Content::Questions(questions) => multiple_choice::ask(questions, &arguments.target_delimiter, encoder),
    };
    asked.with_context(|| arguments.data.display().to_string())
}
