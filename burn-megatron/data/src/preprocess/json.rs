//! The texts of some keys of a JSON object, without building the rest of it.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::json_lines;

/// A document: one text, or its sentences where they are already apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DocumentText<'a> {
    /// The whole text.
    Whole(Cow<'a, str>),
    /// A list of sentences.
    Sentences(Vec<Cow<'a, str>>),
}

impl DocumentText<'_> {
    fn into_owned(self) -> DocumentText<'static> {
        let owned = |text: Cow<str>| Cow::Owned(text.into_owned());
        match self {
            Self::Whole(text) => DocumentText::Whole(owned(text)),
            Self::Sentences(sentences) => DocumentText::Sentences(sentences.into_iter().map(owned).collect()),
        }
    }
}

/// Returns the texts of these keys in a line with a JSON object, in the order of the keys. Of a key that occurs twice
/// the last counts, as in Python.
pub(super) fn texts<'a>(line: &'a str, keys: &[String]) -> Result<Vec<DocumentText<'a>>, String> {
    let found = found(line, keys).or_else(|| match json_lines::without_nan(line) {
        Cow::Borrowed(_) => None,
        Cow::Owned(line) => Some(
            found(&line, keys)?
                .into_iter()
                .map(|text| text.map(DocumentText::into_owned))
                .collect(),
        ),
    });
    let found: Option<Vec<DocumentText>> = found.and_then(|found| found.into_iter().collect());
    found.ok_or_else(|| problem(line, keys))
}

/// Returns what a line has of these keys; `None` if it is wrong.
fn found<'a>(line: &'a str, keys: &[String]) -> Option<Vec<Option<DocumentText<'a>>>> {
    let mut deserializer = serde_json::Deserializer::from_str(line);
    let found = deserializer.deserialize_map(Object { keys }).ok()?;
    deserializer.end().ok()?;
    Some(found)
}

/// Says what is wrong with a line.
fn problem(line: &str, keys: &[String]) -> String {
    let object = match json_lines::object(line) {
        Ok(object) => object,
        Err(problem) => return problem,
    };
    let Some((key, value)) = keys
        .iter()
        .map(|key| (key, object.get(key)))
        .find(|(_, value)| !is_text(*value))
    else {
        return "it cannot be read".to_owned();
    };
    match value {
        Some(value) => format!(
            "the key \"{key}\" has {}, and a text or a list of texts is wanted",
            described(value)
        ),
        None if object.is_empty() => format!("no key \"{key}\": the object is empty"),
        None => format!(
            "no key \"{key}\", there are {}",
            json_lines::keys(object.keys().map(String::as_str))
        ),
    }
}

fn is_text(value: Option<&Value>) -> bool {
    match value {
        Some(Value::Array(list)) => list.iter().all(Value::is_string),
        value => value.is_some_and(Value::is_string),
    }
}

fn described(value: &Value) -> String {
    let wrong = value
        .as_array()
        .and_then(|list| list.iter().find(|value| !value.is_string()));
    match wrong {
        Some(wrong) => format!("a list with {}", json_lines::kind(wrong)),
        None => json_lines::kind(value).to_owned(),
    }
}

struct Object<'k> {
    keys: &'k [String],
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = Vec<Option<DocumentText<'de>>>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut texts = vec![None; self.keys.len()];
        while let Some(Text(found)) = map.next_key()? {
            match self.keys.iter().position(|key| *key == found) {
                Some(key) => texts[key] = Some(map.next_value_seed(TextSeed)?),
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(texts)
    }
}

/// A text, borrowed from the line where it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

struct TextSeed;

impl<'de> DeserializeSeed<'de> for TextSeed {
    type Value = DocumentText<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for TextSeed {
    type Value = DocumentText<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a text or a list of texts")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(DocumentText::Whole(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(DocumentText::Whole(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut sentences = vec![];
        while let Some(Text(sentence)) = list.next_element()? {
            sentences.push(sentence);
        }
        Ok(DocumentText::Sentences(sentences))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn whole(text: &str) -> DocumentText<'_> {
        DocumentText::Whole(Cow::Borrowed(text))
    }

    #[test]
    fn asked_keys_are_taken_in_their_order_and_others_skipped() {
        let line = r#"{"a": {"text": [1, null, 1e999]}, "text": "x\ny\u00e9", "title": "T", "n": -0.5}"#;
        assert_eq!(
            texts(line, &keys(&["title", "text"])),
            Ok(vec![whole("T"), whole("x\nyé")])
        );
        let line = r#" {"te\u0078t": ["one", "t\u0077o"], "x": 1} "#;
        let sentences = DocumentText::Sentences(vec!["one".into(), "two".into()]);
        assert_eq!(texts(line, &keys(&["text"])), Ok(vec![sentences]));
        assert_eq!(
            texts(r#"{"text": "a", "text": "b"}"#, &keys(&["text"])),
            Ok(vec![whole("b")])
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, expected) in [
            (
                r#"{"title": "a", "id": 1}"#,
                r#"no key "text", there are "id", "title""#,
            ),
            ("{}", r#"no key "text": the object is empty"#),
            (
                r#"{"text": 5}"#,
                r#"the key "text" has a number, and a text or a list of texts is wanted"#,
            ),
            (
                r#"{"text": NaN}"#,
                r#"the key "text" has null, and a text or a list of texts is wanted"#,
            ),
            (
                r#"{"text": ["a", null]}"#,
                r#"the key "text" has a list with null, and a text or a list of texts is wanted"#,
            ),
            (
                r#"["text"]"#,
                "it begins a JSON array, and one object on each line is wanted, which jq -c '.[]' FILE > FILE.jsonl \
                 writes",
            ),
            (r#"{"text": "a"} x"#, "column 15: trailing characters"),
        ] {
            assert_eq!(texts(line, &keys(&["text"])).unwrap_err(), expected);
        }
    }

    #[test]
    fn numbers_that_json_does_not_have_do_no_harm_in_other_keys() {
        let line = r#"{"score": NaN, "text": "a NaN", "s": ["x"], "n": -Infinity}"#;
        let sentences = DocumentText::Sentences(vec!["x".into()]);
        assert_eq!(texts(line, &keys(&["text", "s"])), Ok(vec![whole("a NaN"), sentences]));
    }
}
