//! The texts of a conversation as tokens, and which of them are answers.

use std::ops::Range;

use minijinja::Value;

use super::conversation::{Conversation, Problem};
use super::message::Message;
use super::template::{ChatTemplate, Rendered};
use crate::tokenizer::{Token, Tokenizer};

/// A text of a conversation as tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Encoded {
    pub(super) tokens: Vec<Token>,
    /// Tokens of the assistant's messages, in order.
    pub(super) answers: Vec<Range<usize>>,
}

/// Turns a conversation into tokens: one text, or several where the template writes earlier messages otherwise when
/// others follow (that of a model whose earlier thoughts are left out); none if there is no answer.
pub(super) fn encode(
    conversation: &Conversation,
    template: &ChatTemplate,
    tokenizer: &dyn Tokenizer,
) -> Result<Vec<Encoded>, Problem> {
    for (place, message) in conversation.messages.iter().enumerate() {
        message
            .check(|word| template.mentions(word))
            .map_err(|reason| conversation.problem(place, reason))?;
    }
    let texts = texts(conversation, template)?;
    texts.iter().map(|text| tokens(text, tokenizer)).collect()
}

/// Returns the texts in which the answers are learnt, each answer once and after what the model sees when it writes it:
/// the last text has the last answer, and all before it up to which it reads the same.
fn texts(conversation: &Conversation, template: &ChatTemplate) -> Result<Vec<Rendered>, Problem> {
    let whole = template.render_messages(conversation, conversation.messages.len(), false);
    let mut current = Rendered {
        text: whole.map_err(Problem::of_all)?.text,
        generated: vec![],
    };
    // Where blocks of the template mark what is generated, they may be in other messages too.
    let is_learnt = |message: &Message| message.weight.unwrap_or(message.is_answer || template.marks_answers());
    let learnt = conversation
        .messages
        .iter()
        .enumerate()
        .filter(|(_, message)| is_learnt(message));
    let answers = learnt.map(|(place, _)| answer(conversation, template, place));
    let answers = answers.collect::<Result<Vec<_>, _>>()?;
    let mut texts = vec![];
    for mut answer in answers.into_iter().rev().filter(|answer| !answer.generated.is_empty()) {
        if current.text.starts_with(&answer.text) {
            answer.generated.append(&mut current.generated);
            current.generated = answer.generated;
        } else {
            texts.push(std::mem::replace(&mut current, answer));
        }
    }
    texts.push(current);
    texts.retain(|text| !text.generated.is_empty());
    texts.reverse();
    Ok(texts)
}

/// Returns the text up to an answer, and what of it is the answer: what its `{% generation %}` blocks hold; without
/// such blocks what it adds to the text before it, with the prompt for an answer. Where this prompt is not how the
/// answer is written (that of a model that reasons first), what it adds to the text without it; where the template
/// writes what is before an answer otherwise, what follows there is put after the prompt.
fn answer(conversation: &Conversation, template: &ChatTemplate, place: usize) -> Result<Rendered, Problem> {
    let problem = |reason: String| conversation.problem(place, reason);
    let render = |messages: usize, add_generation_prompt| {
        let rendered = template.render_messages(conversation, messages, add_generation_prompt);
        rendered.map_err(|reason| problem(format!("the text up to it cannot be rendered: {reason}")))
    };
    let Rendered {
        mut text,
        mut generated,
    } = render(place + 1, false)?;
    // Nothing is before the first message, and many templates cannot write nothing.
    if template.marks_answers() {
        let before = if place == 0 {
            0
        } else {
            render(place, false)?.generated.len()
        };
        generated.drain(..before.min(generated.len()));
    } else {
        let mut start = 0;
        if place > 0 {
            let prompt = render(place, true)?.text;
            let before = render(place, false)?.text;
            let content = |place: usize| conversation.messages[place].get("content");
            if let Some(prefix) = [&prompt, &before].into_iter().find(|prefix| text.starts_with(*prefix)) {
                start = prefix.len();
            } else if let Some(end) = end_of_prompt(&text, &prompt, [&content(place - 1), &content(place)]) {
                start = prompt.len();
                text = prompt + &text[end..];
            } else {
                return Err(problem(
                    "the template writes the text before it otherwise when it follows; so the answer cannot be found: \
                     give a template with {% generation %} blocks around answers"
                        .to_owned(),
                ));
            }
        }
        generated.push(start..text.len());
    }
    let message = &conversation.messages[place];
    if let (Some(thought), true) = (message.thought(), message.is_answer) {
        let mut written = generated.iter().map(|bytes| &text[bytes.clone()]);
        if !generated.is_empty() && !written.any(|written| written.contains(&thought)) {
            return Err(problem(
                "the template leaves out what was thought before this answer, also where it is the last: take the \
                 thought out, or give a template that writes it"
                    .to_owned(),
            ));
        }
    }
    Ok(Rendered { text, generated })
}

/// Returns where the answer begins in a text whose part before it is not the prompt's (Mistral's has the system's
/// message before the last of the user's alone): after what the prompt has from the content of the last message on.
fn end_of_prompt(text: &str, prompt: &str, [last, answer]: [&Value; 2]) -> Option<usize> {
    let [last, answer] = [last.as_str()?.trim(), answer.as_str()?.trim()];
    let end = &prompt[prompt.rfind(last).filter(|_| !last.is_empty())?..];
    let start = text.rfind(end)? + end.len();
    let is_found = !answer.is_empty() && !answer.contains(end) && text[start..].contains(answer);
    is_found.then_some(start)
}

fn tokens(rendered: &Rendered, tokenizer: &dyn Tokenizer) -> Result<Encoded, Problem> {
    let Rendered { text, generated } = rendered;
    let encode = |text: &str| {
        let mut tokens = vec![];
        let encoded = tokenizer.try_encode(text, &mut tokens);
        encoded
            .map(|()| tokens)
            .map_err(|error| Problem::of_all(error.to_string()))
    };
    let tokens = encode(text)?;
    let mut answers = vec![];
    for bytes in generated.iter().filter(|bytes| !bytes.is_empty()) {
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
