//! The tokens of a conversation, and which of them are answers.

use std::ops::Range;

use super::conversation::{Conversation, Problem};
use super::template::{ChatTemplate, Rendered};
use crate::tokenizer::{Token, Tokenizer};

/// What helps where prefixes do not tell which texts are answers.
const HINT: &str = "so answers cannot be found: give a template with {% generation %} blocks around them";

/// A conversation as tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Encoded {
    pub(super) tokens: Vec<Token>,
    /// Tokens of the assistant's messages, in order.
    pub(super) answers: Vec<Range<usize>>,
}

/// Turns a conversation into tokens.
pub(super) fn encode(
    conversation: &Conversation,
    template: &ChatTemplate,
    tokenizer: &dyn Tokenizer,
) -> Result<Encoded, Problem> {
    let Rendered { text, mut generated } = template
        .render_messages(&conversation.messages, &conversation.tools, false)
        .map_err(Problem::of_all)?;
    if !template.marks_answers() {
        generated = answers_by_prefixes(conversation, template, &text)?;
    }
    let encode = |text: &str| {
        let mut tokens = vec![];
        let encoded = tokenizer.try_encode(text, &mut tokens);
        encoded
            .map(|()| tokens)
            .map_err(|error| Problem::of_all(error.to_string()))
    };
    let tokens = encode(&text)?;
    let mut answers = vec![];
    for bytes in generated.into_iter().filter(|bytes| !bytes.is_empty()) {
        // A token that is both of the prompt and of the answer counts to the answer.
        let start = common(&encode(&text[..bytes.start])?, &tokens);
        let mut end = tokens.len();
        if bytes.end < text.len() {
            let before = encode(&text[..bytes.end])?;
            end = common(&before, &tokens);
            // As does one that is of what follows too.
            end += usize::from(end < before.len());
        }
        answers.push(start..end.min(tokens.len()));
    }
    Ok(Encoded { tokens, answers })
}

/// How many tokens two texts begin with alike.
fn common(left: &[Token], right: &[Token]) -> usize {
    left.iter().zip(right).take_while(|(left, right)| left == right).count()
}

/// Returns the bytes of answers in the text of a conversation: what a message of the assistant adds to the text before
/// it, with the prompt for an answer. Where this prompt is not how the answer is written (that of a model that reasons
/// first), what it adds to the text without it.
fn answers_by_prefixes(
    conversation: &Conversation,
    template: &ChatTemplate,
    text: &str,
) -> Result<Vec<Range<usize>>, Problem> {
    let mut answers = vec![];
    for place in conversation.answers() {
        let render = |messages: usize, add_generation_prompt| {
            let rendered = template.render_messages(
                &conversation.messages[..messages],
                &conversation.tools,
                add_generation_prompt,
            );
            rendered
                .map(|rendered| rendered.text)
                .map_err(|reason| Problem::of_message(place, format!("the text up to it cannot be rendered: {reason}")))
        };
        let whole = render(place + 1, false)?;
        if !text.starts_with(&whole) {
            let reason = format!("the template writes the text up to it otherwise when other messages follow; {HINT}");
            return Err(Problem::of_message(place, reason));
        }
        // Nothing is before the first message, and many templates cannot write nothing.
        let mut start = 0;
        if place > 0 {
            let prompt = render(place, true)?;
            start = prompt.len();
            if !whole.starts_with(&prompt) {
                let before = render(place, false)?;
                start = before.len();
                if !whole.starts_with(&before) {
                    let reason = format!("the template writes the text before it otherwise when it follows; {HINT}");
                    return Err(Problem::of_message(place, reason));
                }
            }
        }
        answers.push(start..whole.len());
    }
    Ok(answers)
}
