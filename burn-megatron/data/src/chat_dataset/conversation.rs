//! `Conversation`: a line of a file of conversations.

use std::sync::LazyLock;

use minijinja::Value;
use minijinja::value::ValueKind;
use regex::Regex;
use serde::Deserialize;

use super::json::{JsonValue, OrderedObject};

/// Characters that Unicode sets aside for programs: the template's text has them where an answer starts and ends.
pub(super) const MARKS: [char; 2] = ['\u{FDD0}', '\u{FDD1}'];

/// Messages, as templates take them.
#[derive(Debug)]
pub(super) struct Conversation {
    pub(super) messages: Vec<Value>,
    pub(super) tools: Value,
}

/// The two forms that a line can have. What else it has is not read.
#[derive(Deserialize)]
struct Line {
    messages: Option<Vec<JsonValue>>,
    conversations: Option<Vec<JsonValue>>,
    tools: Option<JsonValue>,
}

/// What is wrong with a conversation, and with which of its messages, from 0.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) message: Option<usize>,
    pub(super) reason: String,
}

impl Problem {
    pub(super) fn of_message(message: usize, reason: impl Into<String>) -> Self {
        Self {
            message: Some(message),
            reason: reason.into(),
        }
    }

    pub(super) fn of_all(reason: impl Into<String>) -> Self {
        Self {
            message: None,
            reason: reason.into(),
        }
    }
}

impl Conversation {
    /// Reads a line: `{"messages": [{"role": …, "content": …}, …]}`, or ShareGPT's `{"conversations": [{"from": …,
    /// "value": …}, …]}`, of which `human` is the user and `gpt` the assistant. `tools` are passed on.
    pub(super) fn parse(line: &[u8]) -> Result<Self, Problem> {
        let line = std::str::from_utf8(line).map_err(|error| Problem::of_all(error.to_string()))?;
        check_marks(line).map_err(Problem::of_all)?;
        let line: Line = serde_json::from_str(line).map_err(|error| Problem::of_all(error.to_string()))?;
        let messages = line.messages.or(line.conversations).ok_or_else(|| {
            Problem::of_all(
                "no list \"messages\" of {\"role\", \"content\"}, nor \"conversations\" of {\"from\", \"value\"}",
            )
        })?;
        if messages.is_empty() {
            return Err(Problem::of_all("a conversation without messages"));
        }
        let messages = messages
            .into_iter()
            .enumerate()
            .map(|(place, message)| named(message.0).map_err(|reason| Problem::of_message(place, reason)));
        Ok(Self {
            messages: messages.collect::<Result<_, _>>()?,
            tools: line.tools.unwrap_or_default().0,
        })
    }

    /// Returns the messages that are the assistant's.
    pub(super) fn answers(&self) -> impl Iterator<Item = usize> {
        let is_answer = |message: &Value| {
            message
                .get_attr("role")
                .is_ok_and(|role| role.as_str() == Some("assistant"))
        };
        (0..self.messages.len()).filter(move |&place| is_answer(&self.messages[place]))
    }
}

/// Checks that JSON has none of [`MARKS`] in its texts.
pub(super) fn check_marks(json: &str) -> Result<(), &'static str> {
    static ESCAPED_MARK: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\\u[fF][dD][dD][01]").expect("the expression can be read"));
    if json.contains(MARKS) || ESCAPED_MARK.is_match(json) {
        return Err("it has U+FDD0 or U+FDD1, which are no characters of texts");
    }
    Ok(())
}

/// Returns a message with a `role` and a `content`.
fn named(message: Value) -> Result<Value, String> {
    let attribute = |name: &str| message.get_attr(name).unwrap_or_default();
    if message.kind() != ValueKind::Map {
        return Err(format!("{} instead of an object", message.kind()));
    }
    if attribute("role").as_str().is_some() {
        return Ok(message);
    }
    let from = attribute("from");
    let role = match from.as_str() {
        Some("human") => "user",
        Some("gpt") => "assistant",
        Some(role) => role,
        None => return Err("no text \"role\" (\"system\", \"user\", \"assistant\", …)".to_owned()),
    };
    let entries = vec![
        ("role".into(), Value::from(role)),
        ("content".into(), attribute("value")),
    ];
    Ok(Value::from_object(OrderedObject(entries)))
}
