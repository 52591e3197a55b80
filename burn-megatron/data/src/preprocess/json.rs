//! The texts of some keys of a JSON object, without building the rest of it.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A document: one text, or its sentences where they are already apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DocumentText<'a> {
    /// The whole text.
    Whole(Cow<'a, str>),
    /// A list of sentences.
    Sentences(Vec<Cow<'a, str>>),
}

/// Returns the texts of these keys in a line with a JSON object, in the order of the keys. Of a key that occurs twice
/// the last counts, as in Python.
pub(super) fn texts<'a>(line: &'a str, keys: &[String]) -> Result<Vec<DocumentText<'a>>, String> {
    let mut deserializer = serde_json::Deserializer::from_str(line);
    let found = deserializer.deserialize_map(Object { keys });
    let found = found.map_err(|error| describe(&error))?;
    deserializer.end().map_err(|error| describe(&error))?;
    let mut texts = Vec::with_capacity(keys.len());
    for (key, text) in keys.iter().zip(found) {
        texts.push(text.ok_or_else(|| missing(line, key))?);
    }
    Ok(texts)
}

/// A line is all that the parser sees, so its own line number says nothing.
fn describe(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let message = message.split(" at line ").next().unwrap_or(&message);
    format!("column {}: {message}", error.column())
}

/// Names the keys that there are.
fn missing(line: &str, key: &str) -> String {
    const NAMED: usize = 8;
    let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line).unwrap_or_default();
    let mut present: Vec<String> = object.keys().take(NAMED).map(|key| format!("{key:?}")).collect();
    if object.len() > NAMED {
        present.push(format!("{} more", object.len() - NAMED));
    }
    match present.as_slice() {
        [] => format!("no key {key:?}: the object is empty"),
        _ => format!("no key {key:?}, there are {}", present.join(", ")),
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
                Some(key) => texts[key] = Some(map.next_value_seed(TextSeed { key: &self.keys[key] })?),
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(texts)
    }
}

/// A text, borrowed from the line where it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

struct TextSeed<'k> {
    key: &'k str,
}

impl<'de> DeserializeSeed<'de> for TextSeed<'_> {
    type Value = DocumentText<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for TextSeed<'_> {
    type Value = DocumentText<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a string or a list of strings for the key {:?}", self.key)
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
        let error = |line| texts(line, &keys(&["text"])).unwrap_err();
        assert_eq!(
            error(r#"{"title": "a", "id": 1}"#),
            r#"no key "text", there are "id", "title""#
        );
        assert_eq!(error("{}"), r#"no key "text": the object is empty"#);
        let expected = r#"expected a string or a list of strings for the key "text""#;
        assert_eq!(
            error(r#"{"text": 5}"#),
            format!("column 10: invalid type: integer `5`, {expected}")
        );
        assert_eq!(
            error(r#"{"text": null}"#),
            format!("column 13: invalid type: null, {expected}")
        );
        assert_eq!(
            error(r#"["text"]"#),
            "column 0: invalid type: sequence, expected a JSON object"
        );
        assert_eq!(error(r#"{"text": "a"} x"#), "column 15: trailing characters");
        assert_eq!(error(r#"{"text": "a"#), "column 11: EOF while parsing a string");
    }
}
