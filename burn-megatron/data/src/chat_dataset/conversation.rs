//! `Conversation`: a line of a file of conversations.

use std::sync::LazyLock;

use minijinja::Value;
use regex::Regex;

use super::json::{JsonList, JsonValue, OrderedObject};
use super::message::Message;
use crate::json_lines;
use crate::names::{Effect, Table, effect_of, refusal, refused, unknown};

/// Characters that Unicode sets aside for programs: the template's text has them where an answer starts and ends.
pub(super) const MARKS: [char; 2] = ['\u{FDD0}', '\u{FDD1}'];

/// Keys of a line; those that are refused would change what is learnt.
const KEYS: &Table = &[
    ("messages", Effect::Read),
    ("conversations", Effect::Read),
    ("tools", Effect::Read),
    ("system", Effect::Read),
    ("chat_template_kwargs", Effect::Read),
    ("mask", refused("it would change what is learnt")),
    ("functions", refused("give tools")),
    ("roles_to_train", refused("the assistant's messages are learnt")),
    ("weight", OF_MESSAGES),
    ("train", OF_MESSAGES),
    ("loss", OF_MESSAGES),
];

const OF_MESSAGES: Effect = refused("it is for messages, and the conversation has it");

/// Messages, as templates take them.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    pub(super) messages: Vec<Message>,
    pub(super) tools: Value,
    /// Variables of the template, in addition to the usual ones.
    pub(super) variables: Value,
    /// Messages before those of the line.
    added: usize,
    /// Keys that have no effect.
    pub(super) ignored: Vec<String>,
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
    /// "value": …}, …]}`. `tools` are passed on, `system` is the first message of a conversation that has none of the
    /// system, and `chat_template_kwargs` are variables of the template.
    pub(super) fn parse(line: &[u8]) -> Result<Self, Problem> {
        let line = std::str::from_utf8(line).map_err(|error| Problem::of_all(error.to_string()))?;
        check_marks(line).map_err(Problem::of_all)?;
        let JsonValue(value) = json_lines::parse(line).map_err(Problem::of_all)?;
        let Some(OrderedObject(entries)) = value.downcast_object_ref() else {
            return Err(Problem::of_all(json_lines::no_object(
                line,
                &format!("a {}", value.kind()),
            )));
        };
        let get = |name: &str| {
            let found = entries.iter().find(|(key, value)| **key == *name && !value.is_none());
            found.map(|(_, value)| value)
        };
        let mut conversation = Self {
            tools: tools(get("tools")).map_err(Problem::of_all)?,
            variables: get("chat_template_kwargs")
                .cloned()
                .unwrap_or_else(|| Value::from_object(OrderedObject(vec![]))),
            ignored: ignored(
                entries
                    .iter()
                    .filter(|(_, value)| !value.is_none())
                    .map(|(key, _)| &**key),
            )
            .map_err(Problem::of_all)?,
            ..Self::default()
        };
        if conversation.variables.downcast_object_ref::<OrderedObject>().is_none() {
            return Err(Problem::of_all("\"chat_template_kwargs\" is no object"));
        }
        let Some(messages) = get("messages").or_else(|| get("conversations")) else {
            return Err(Problem::of_all(format!(
                "no list \"messages\" of {{\"role\", \"content\"}}, nor \"conversations\" of {{\"from\", \"value\"}}, \
                 there are {}",
                json_lines::keys(entries.iter().map(|(key, _)| &**key))
            )));
        };
        let Some(JsonList(messages)) = messages.downcast_object_ref() else {
            return Err(Problem::of_all(format!(
                "the messages are a {}, and a list is wanted",
                messages.kind()
            )));
        };
        if messages.is_empty() {
            return Err(Problem::of_all("a conversation without messages"));
        }
        let messages = messages
            .iter()
            .enumerate()
            .map(|(place, message)| Message::read(message).map_err(|reason| Problem::of_message(place, reason)));
        conversation.messages = messages.collect::<Result<_, _>>()?;
        if let Some(system) = get("system").filter(|system| system.is_true()) {
            conversation.begin(system)?;
        }
        Ok(conversation)
    }

    /// Begins with a message of the system, if it does not yet.
    fn begin(&mut self, system: &Value) -> Result<(), Problem> {
        let first = &self.messages[0];
        if first.get("role").as_str() != Some("system") {
            self.messages.insert(0, Message::system(system.clone()));
            self.added = 1;
        } else if first.get("content") != *system {
            return Err(Problem::of_all(
                "\"system\" and the first message, which is the system's, are two texts",
            ));
        }
        Ok(())
    }

    /// Returns what is wrong with a message, by its place among all.
    pub(super) fn problem(&self, place: usize, reason: impl Into<String>) -> Problem {
        match place.checked_sub(self.added) {
            Some(place) => Problem::of_message(place, reason),
            None => Problem::of_all(reason),
        }
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

/// Tools, also where they are a text of JSON, as some files have them.
fn tools(tools: Option<&Value>) -> Result<Value, String> {
    let Some(tools) = tools else {
        return Ok(Value::from(()));
    };
    match tools.as_str() {
        None => Ok(tools.clone()),
        Some(text) if text.trim().is_empty() => Ok(Value::from(())),
        Some(text) => match json_lines::parse(text) {
            Ok(JsonValue(tools)) => Ok(tools),
            Err(_) => Err("\"tools\" is a text that is no JSON: give a list".to_owned()),
        },
    }
}

/// Returns the keys of a line that are not read.
fn ignored<'a>(keys: impl Iterator<Item = &'a str>) -> Result<Vec<String>, String> {
    let mut ignored = vec![];
    for key in keys {
        match effect_of(&[KEYS], key) {
            None => {
                let read = KEYS.iter().filter(|(_, effect)| *effect == Effect::Read);
                unknown("", key, read.map(|(known, _)| *known), true)?;
                ignored.push(key.to_owned());
            }
            Some(Effect::Only(values, why)) => return Err(refusal(key, "", values, why)),
            Some(_) => {}
        }
    }
    Ok(ignored)
}
