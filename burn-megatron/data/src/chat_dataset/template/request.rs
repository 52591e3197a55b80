//! [`ChatTemplate::render_request`]: the prompt of a request of OpenAI's chat API.

use minijinja::Value;
use minijinja::value::{ValueKind, merge_maps};

use super::{ChatTemplate, now};
use crate::chat_dataset::ChatError;
use crate::chat_dataset::conversation::check_marks;
use crate::chat_dataset::json::{JsonValue, OrderedObject};

/// Follows the last message's content in a text that is cut there, with a space that templates strip or do not: a
/// character that Unicode sets aside for programs.
const CUT: &str = "\u{FDD2} ";

/// The end of a conversation's prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PromptEnd {
    /// Where an answer begins.
    #[default]
    GenerationPrompt,
    /// In the last message, whose content is continued.
    FinalMessage,
    /// After the last message.
    Whole,
}

impl ChatTemplate {
    /// Returns the prompt of a request, a JSON object: its `messages`, with `tools` unless `tool_choice` is `"none"`,
    /// and `documents`, `reasoning_effort`, `enable_thinking` and the keys of `chat_template_kwargs` for the template.
    ///
    /// A message's content is a text, or a list of parts `{"type": "text", "text": …}`, which become lines. As in vLLM,
    /// the arguments of tool calls, which are JSON in a text, become objects for the template.
    /// `strftime_now` writes the time of the call.
    ///
    /// # Errors
    /// A message is none, or the template refuses it.
    pub fn render_request(&self, request: &str, end: PromptEnd) -> Result<String, ChatError> {
        self.prompt(request, end)
            .map_err(|reason| ChatError::Conversation { reason })
    }

    fn prompt(&self, request: &str, end: PromptEnd) -> Result<String, String> {
        check_marks(request)?;
        let JsonValue(request) = serde_json::from_str(request).map_err(|error| error.to_string())?;
        let field = |name: &str| request.get_attr(name).ok().filter(is_given);
        let messages = field("messages").ok_or("missing field messages")?;
        let mut messages = elements(&messages).ok_or("messages must be a list of messages")?;
        for (place, message) in messages.iter_mut().enumerate() {
            *message = for_template(message).map_err(|reason| format!("messages[{place}]{reason}"))?;
        }
        let last = messages.last_mut().ok_or("messages must have one message at least")?;
        if end == PromptEnd::FinalMessage {
            let content = last.get_attr("content").unwrap_or_default();
            let content = content.as_str().filter(|content| !content.trim().is_empty());
            let content = content.ok_or("continue_final_message: the last message has no text to continue")?;
            *last = with(last, "content", Value::from(format!("{content}{CUT}")));
        }
        let has_tools = field("tool_choice").is_none_or(|choice| choice.as_str() != Some("none"));
        let tools = field("tools")
            .filter(|tools| has_tools && tools.is_true())
            .unwrap_or_default();
        let own = ["documents", "reasoning_effort", "enable_thinking"].into_iter();
        let own = Value::from_pairs(own.filter_map(|name| Some((name, field(name)?))));
        let variables = match field("chat_template_kwargs") {
            Some(given) if given.kind() != ValueKind::Map => {
                return Err("chat_template_kwargs must be an object".into());
            }
            Some(given) => merge_maps([own, given]),
            None => own,
        };
        let text = self
            .clone()
            .with_time(now())
            .render_with(&messages, &tools, end == PromptEnd::GenerationPrompt, variables)?
            .text;
        if end != PromptEnd::FinalMessage {
            return Ok(text);
        }
        let mark = CUT.trim_end();
        let place = text.rfind(mark);
        let place = place.ok_or("continue_final_message: the template does not write the last message's content")?;
        let kept = &text[..place];
        // A template that strips contents would have stripped this one's end too.
        let is_kept = text[place..].starts_with(CUT);
        Ok(if is_kept { kept } else { kept.trim_end() }.to_owned())
    }
}

fn is_given(value: &Value) -> bool {
    !value.is_undefined() && !value.is_none()
}

fn elements(value: &Value) -> Option<Vec<Value>> {
    let is_list = matches!(value.kind(), ValueKind::Seq);
    is_list.then(|| value.try_iter().ok())?.map(Iterator::collect)
}

/// Returns an object with another value for a key, in the key's place or at the end.
fn with(object: &Value, name: &str, value: Value) -> Value {
    let mut entries = entries(object).unwrap_or_default();
    match entries.iter_mut().find(|(key, _)| **key == *name) {
        Some((_, old)) => *old = value,
        None => entries.push((name.into(), value)),
    }
    Value::from_object(OrderedObject(entries))
}

fn entries(object: &Value) -> Option<Vec<(std::sync::Arc<str>, Value)>> {
    object
        .downcast_object_ref::<OrderedObject>()
        .map(|object| object.0.clone())
}

/// Returns a message as templates take it. An error is what is wrong, after the message's name.
fn for_template(message: &Value) -> Result<Value, String> {
    let mut entries = entries(message).ok_or_else(|| format!(" must be an object, got {}", message.kind()))?;
    // Clients send back what they got: null where an answer has nothing, and no calls.
    entries.retain(|(name, value)| is_given(value) && (&**name != "tool_calls" || value.is_true()));
    let message = Value::from_object(OrderedObject(entries));
    let field = |name: &str| message.get_attr(name).unwrap_or_default();
    let role = field("role");
    let role = role
        .as_str()
        .ok_or(".role must be a text (system, user, assistant, tool, …)")?;
    let calls = field("tool_calls");
    let mut message = match content(&field("content"))? {
        Some(content) => with(&message, "content", content),
        None if calls.is_true() => message.clone(),
        None if role == "assistant" => with(&message, "content", Value::from("")),
        None => return Err(" has no content".to_owned()),
    };
    if !calls.is_undefined() {
        let mut calls = elements(&calls).ok_or(".tool_calls must be a list")?;
        for (place, call) in calls.iter_mut().enumerate() {
            let function = call.get_attr("function").unwrap_or_default();
            let arguments = function.get_attr("arguments").unwrap_or_default();
            let Some(text) = arguments.as_str() else {
                continue;
            };
            let text = if text.trim().is_empty() { "{}" } else { text };
            let JsonValue(parsed) = serde_json::from_str(text)
                .map_err(|_| format!(".tool_calls[{place}].function.arguments must be JSON, got {text:?}"))?;
            *call = with(call, "function", with(&function, "arguments", parsed));
        }
        message = with(&message, "tool_calls", Value::from(calls));
    }
    Ok(message)
}

/// Returns a content as a text; `None` if there is none.
fn content(content: &Value) -> Result<Option<Value>, String> {
    if content.is_undefined() || content.as_str().is_some() {
        return Ok(content.as_str().map(Value::from));
    }
    let parts = elements(content).ok_or(".content must be a text or a list of parts")?;
    let text = |(place, part): (usize, &Value)| {
        if let Some(text) = part.as_str() {
            return Ok(text.to_owned());
        }
        let kind = part.get_attr("type").unwrap_or_default();
        match (kind.as_str(), part.get_attr("text").unwrap_or_default().as_str()) {
            (Some("text"), Some(text)) => Ok(text.to_owned()),
            _ => Err(format!(
                ".content[{place}] must be {{\"type\": \"text\", \"text\": …}}: only text is taken"
            )),
        }
    };
    let texts: Result<Vec<String>, String> = parts.iter().enumerate().map(text).collect();
    Ok(Some(Value::from(texts?.join("\n"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEMPLATE: &str = "{{ bos_token }}{% for tool in tools or [] %}[{{ tool | tojson }}]{% endfor %}\
        {% for message in messages %}<{{ message.role }}>{{ message.content | trim if strips else message.content }}\
        {% for call in message.tool_calls or [] %}({{ call.function.name }} {{ call.function.arguments.q }})\
        {% endfor %}</>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}{{ reasoning_effort }}";

    fn prompt(request: &str, end: PromptEnd) -> Result<String, String> {
        let template = ChatTemplate::from_source(TEMPLATE).unwrap();
        template.render_request(request, end).map_err(|error| error.to_string())
    }

    #[test]
    fn prompts_of_requests_are_written_as_vllm_writes_them() {
        let usual = PromptEnd::GenerationPrompt;
        for (request, end, expected) in [
            (
                r#"{"messages": [{"role": "user", "content": "e"}]}"#,
                usual,
                "<user>e</><assistant>",
            ),
            (
                r#"{"messages": [{"role": "user", "content": "e"}]}"#,
                PromptEnd::Whole,
                "<user>e</>",
            ),
            (
                r#"{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"},
                    {"type": "text", "text": "b"}]}]}"#,
                usual,
                "<user>a\nb</><assistant>",
            ),
            // As the SDK gives an answer back.
            (
                r#"{"messages": [{"role": "assistant", "content": null, "refusal": null, "tool_calls": null}]}"#,
                usual,
                "<assistant></><assistant>",
            ),
            (
                r#"{"messages": [{"role": "assistant", "tool_calls": [{"id": "1", "type": "function",
                    "function": {"name": "f", "arguments": "{\"q\": 5}"}}]}, {"role": "tool", "content": "7"}]}"#,
                usual,
                "<assistant>(f 5)</><tool>7</><assistant>",
            ),
            (
                r#"{"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function", "name": "b"}],
                    "reasoning_effort": "low"}"#,
                usual,
                "[{\"type\": \"function\", \"name\": \"b\"}]<user>a</><assistant>low",
            ),
            (
                r#"{"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function"}],
                    "tool_choice": "none", "chat_template_kwargs": {"bos_token": "!"}}"#,
                usual,
                "!<user>a</><assistant>",
            ),
            // Cut after the content, not after the last text that looks like it.
            (
                r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "</ "}]}"#,
                PromptEnd::FinalMessage,
                "<user>a</><assistant></ ",
            ),
            (
                r#"{"messages": [{"role": "assistant", "content": " b "}], "chat_template_kwargs": {"strips": true}}"#,
                PromptEnd::FinalMessage,
                "<assistant>b",
            ),
        ] {
            assert_eq!(prompt(request, end).unwrap(), expected, "{request}");
        }
    }

    #[test]
    fn what_is_no_message_is_named() {
        for (request, message) in [
            (r#"{}"#, "missing field messages"),
            (r#"{"messages": "a"}"#, "messages must be a list of messages"),
            (r#"{"messages": []}"#, "messages must have one message at least"),
            (r#"{"messages": [5]}"#, "messages[0] must be an object, got number"),
            (r#"{"messages": [{"content": "a"}]}"#, "messages[0].role must be a text"),
            (r#"{"messages": [{"role": "user"}]}"#, "messages[0] has no content"),
            (
                r#"{"messages": [{"role": "user", "content": 5}]}"#,
                "messages[0].content must be a text or a list",
            ),
            (
                r#"{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}"#,
                "messages[0].content[0] must be",
            ),
            (
                r#"{"messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": "{"}}]}]}"#,
                "messages[0].tool_calls[0].function.arguments must be JSON",
            ),
            (
                r#"{"messages": [{"role": "user", "content": "a\ufdd0"}]}"#,
                "it has U+FDD0 or U+FDD1",
            ),
        ] {
            let error = prompt(request, PromptEnd::GenerationPrompt).unwrap_err();
            assert!(error.contains(message), "{request}: {error}");
        }
        let request = r#"{"messages": [{"role": "assistant", "content": " "}]}"#;
        let error = prompt(request, PromptEnd::FinalMessage).unwrap_err();
        assert!(error.contains("no text to continue"), "{error}");
    }
}
