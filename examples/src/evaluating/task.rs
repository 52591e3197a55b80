//! [`ask`]: the sequences that the data of a task asks a model for.

use anyhow::Context as _;

use super::data::{Content, TaskData};
use super::encoding::Encoder;
use super::sequence::Asked;
use super::{lambada, multiple_choice, wikitext};
use crate::arguments::TaskArguments;

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
