//! `Message`: a message as templates take it, and whether it is learnt.

use std::sync::Arc;

use minijinja::Value;

use super::json::OrderedObject;

/// Names of roles in files, in any case, and the roles that templates know: ShareGPT's files have several.
const ROLES: [(&str, &str); 15] = [
    ("system", "system"),
    ("developer", "developer"),
    ("user", "user"),
    ("human", "user"),
    ("assistant", ASSISTANT),
    ("gpt", ASSISTANT),
    ("chatgpt", ASSISTANT),
    ("bing", ASSISTANT),
    ("bard", ASSISTANT),
    ("model", ASSISTANT),
    ("bot", ASSISTANT),
    ("tool", "tool"),
    ("observation", "tool"),
    ("function", "function"),
    ("ipython", "ipython"),
];
const ASSISTANT: &str = "assistant";
/// Keys that say whether an answer is learnt: OpenAI's, axolotl's and ms-swift's.
const LEARNT: [&str; 3] = ["weight", "train", "loss"];
/// Names of what the assistant thought, in transformers' order.
const THOUGHTS: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];
/// Keys that change nothing where a template does not write them.
const HARMLESS: [&str; 8] = [
    "role",
    "content",
    "name",
    "tool_call_id",
    "id",
    "refusal",
    "annotations",
    "timestamp",
];

/// A message of a conversation.
#[derive(Debug)]
pub(super) struct Message {
    /// The object that templates see.
    pub(super) value: Value,
    /// True if it is the assistant's.
    pub(super) is_answer: bool,
    /// True if the loss counts it; `None` where the message does not say.
    pub(super) weight: Option<bool>,
}

impl Message {
    /// Reads a message: one with `role` and `content`, or ShareGPT's with `from` and `value`. As in transformers, keys
    /// that are null are left out, and what was thought has all its names.
    pub(super) fn read(value: &Value) -> Result<Self, String> {
        let Some(object) = value.downcast_object_ref::<OrderedObject>() else {
            return Err(format!("{} instead of an object", value.kind()));
        };
        let has = |name: &str| object.0.iter().any(|(key, value)| **key == *name && !value.is_none());
        let mut entries: Vec<(Arc<str>, Value)> = vec![];
        let mut weight: Option<(String, bool)> = None;
        for (key, value) in object.0.iter().filter(|(_, value)| !value.is_none()) {
            let key: Arc<str> = match &**key {
                "from" if !has("role") => "role".into(),
                "value" if !has("content") => "content".into(),
                name if LEARNT.contains(&name) => {
                    let is_learnt = switch(value).ok_or_else(|| {
                        format!("\"{name}\" is 0 or 1, false or true, got {value}: parts of a weight are not supported")
                    })?;
                    weight = Some((name.to_owned(), weight.is_none_or(|(_, before)| before) && is_learnt));
                    continue;
                }
                _ => key.clone(),
            };
            let value = match (&*key, value.as_str()) {
                ("role", Some(name)) => Value::from(known_role(name).unwrap_or(name)),
                _ => value.clone(),
            };
            entries.push((key, value));
        }
        let role = entries.iter().find(|(key, _)| &**key == "role");
        let role = role.and_then(|(_, role)| role.as_str());
        let role = role.ok_or("no text \"role\" (\"system\", \"user\", \"assistant\", …)")?;
        let is_answer = role == ASSISTANT;
        if let (Some((name, true)), false) = (&weight, is_answer) {
            return Err(format!(
                "\"{name}\" asks to learn a message of the role \"{role}\", and only the assistant's are learnt"
            ));
        }
        name_thoughts(&mut entries);
        Ok(Self {
            value: Value::from_object(OrderedObject(entries)),
            is_answer,
            weight: weight.map(|(_, is_learnt)| is_learnt),
        })
    }

    /// Returns a message of the system.
    pub(super) fn system(content: Value) -> Self {
        let entries = vec![("role".into(), Value::from("system")), ("content".into(), content)];
        Self {
            value: Value::from_object(OrderedObject(entries)),
            is_answer: false,
            weight: None,
        }
    }

    /// Returns the value of a key; undefined if there is none.
    pub(super) fn get(&self, key: &str) -> Value {
        self.value.get_attr(key).unwrap_or_default()
    }

    /// Checks that all that the message says is written by the template, or has another meaning. `is_written` says
    /// which words the template has.
    pub(super) fn check(&self, is_written: impl Fn(&str) -> bool) -> Result<(), String> {
        let role = self.get("role");
        let role = role.as_str().unwrap_or_default();
        if known_role(role).is_none() && !is_written(role) {
            let known: Vec<&str> = ROLES.iter().map(|(name, _)| *name).collect();
            let known = known.join(", ");
            return Err(format!(
                "the role \"{role}\" is unknown: known are {known}, and those that the template names"
            ));
        }
        let object = self.value.downcast_object_ref::<OrderedObject>();
        for (key, value) in object.iter().flat_map(|object| &object.0) {
            let is_known = HARMLESS.contains(&&**key) || THOUGHTS.contains(&&**key);
            if !is_known && value.is_true() && !is_written(key) {
                return Err(format!(
                    "the template does not write the key \"{key}\": take it out, mend its name, or give a template \
                     that writes it (keys with a meaning of their own are {})",
                    LEARNT.join(", ")
                ));
            }
        }
        let has_text = ["content", "tool_calls", THOUGHTS[0]]
            .iter()
            .any(|key| !self.get(key).is_undefined());
        if self.is_answer && !has_text {
            return Err("the assistant's message has no \"content\"".to_owned());
        }
        Ok(())
    }

    /// Returns what the assistant thought before the answer, if a text.
    pub(super) fn thought(&self) -> Option<String> {
        let (content, thought) = (self.get("content"), self.get(THOUGHTS[0]));
        let of_content = || {
            let (before, _) = content.as_str()?.split_once("</think>")?;
            Some(before.rsplit("<think>").next().unwrap_or(before))
        };
        let thought = thought.as_str().or_else(of_content)?.trim();
        (!thought.is_empty()).then(|| thought.to_owned())
    }
}

fn known_role(name: &str) -> Option<&'static str> {
    let known = ROLES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    known.map(|(_, role)| *role)
}

/// `true`, `false`, 1 or 0.
fn switch(value: &Value) -> Option<bool> {
    match f64::try_from(value.clone()) {
        Ok(number) => [0.0, 1.0].contains(&number).then_some(number == 1.0),
        Err(_) => bool::try_from(value.clone()).ok(),
    }
}

/// Gives what was thought the names under which templates look for it, as transformers does.
fn name_thoughts(entries: &mut Vec<(Arc<str>, Value)>) {
    let find = |entries: &[(Arc<str>, Value)], name: &str| entries.iter().position(|(key, _)| **key == *name);
    let Some(place) = THOUGHTS.iter().find_map(|name| find(entries, name)) else {
        return;
    };
    let thought = entries[place].1.clone();
    if find(entries, "thinking").is_none() {
        entries.insert(0, ("thinking".into(), thought.clone()));
    }
    match find(entries, THOUGHTS[0]) {
        Some(place) => entries[place].1 = thought,
        None => entries.push((THOUGHTS[0].into(), thought)),
    }
}
