//! [`Node`]: JSON with the order of its keys, and with those that are written twice.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};

use super::ConfigError;

/// Characters of a value that a message shows.
const SHOWN: usize = 60;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Object(Vec<(String, Node)>),
}

impl Node {
    /// Parses a text.
    ///
    /// # Errors
    /// When it is no JSON, with line and column, or a key occurs twice in an object, with its path.
    pub(super) fn parse(text: &str) -> Result<Self, ConfigError> {
        let node: Self = serde_json::from_str(text).map_err(|error| ConfigError::NotJson(error.to_string()))?;
        node.check_keys("")?;
        Ok(node)
    }

    fn check_keys(&self, path: &str) -> Result<(), ConfigError> {
        match self {
            Node::Object(entries) => {
                for (index, (key, node)) in entries.iter().enumerate() {
                    let path = join(path, key);
                    if entries[..index].iter().any(|(earlier, _)| earlier == key) {
                        return Err(ConfigError::Duplicate { path });
                    }
                    node.check_keys(&path)?;
                }
                Ok(())
            }
            Node::List(nodes) => nodes.iter().try_for_each(|node| node.check_keys(path)),
            _ => Ok(()),
        }
    }

    /// Returns a number that has no fraction: `500000000` or `5e8`.
    pub(super) fn as_count(&self) -> Option<u64> {
        // Above this f64 has no neighbours that differ by 1.
        const LARGEST: f64 = (1u64 << 53) as f64;
        let Node::Number(number) = self else {
            return None;
        };
        let of_float = |value: f64| (value.fract() == 0.0 && (0.0..=LARGEST).contains(&value)).then_some(value as u64);
        number.as_u64().or_else(|| number.as_f64().and_then(of_float))
    }

    pub(super) fn as_number(&self) -> Option<f64> {
        match self {
            Node::Number(number) => number.as_f64(),
            _ => None,
        }
    }

    /// Whether `"enabled": true` is in an object; `within` one, at any depth.
    pub(super) fn is_enabled(&self, within: bool) -> bool {
        let Node::Object(entries) = self else {
            return false;
        };
        let has = |(key, node): &(String, Node)| key == "enabled" && *node == Node::Bool(true);
        entries.iter().any(has) || within && entries.iter().any(|(_, node)| node.is_enabled(true))
    }

    fn to_value(&self) -> Value {
        match self {
            Node::Null => Value::Null,
            Node::Bool(value) => Value::Bool(*value),
            Node::Number(number) => Value::Number(number.clone()),
            Node::Text(text) => Value::String(text.clone()),
            Node::List(nodes) => Value::Array(nodes.iter().map(Node::to_value).collect()),
            Node::Object(entries) => {
                let entry = |(key, node): &(String, Node)| (key.clone(), node.to_value());
                Value::Object(entries.iter().map(entry).collect())
            }
        }
    }
}

/// Returns the path of a key in a section.
pub(super) fn join(section: &str, key: &str) -> String {
    let key = key.escape_debug();
    if section.is_empty() {
        key.to_string()
    } else {
        format!("{section}.{key}")
    }
}

/// As JSON, cut to a length that fits a message.
impl fmt::Display for Node {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.to_value().to_string();
        match text.char_indices().nth(SHOWN) {
            Some((end, _)) => write!(formatter, "{}…", &text[..end]),
            None => formatter.write_str(&text),
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value of JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Bool(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Number(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Node, E> {
        let number = Number::from_f64(value);
        number
            .map(Node::Number)
            .ok_or_else(|| E::custom("a number is not finite"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
        let mut nodes = vec![];
        while let Some(node) = list.next_element()? {
            nodes.push(node);
        }
        Ok(Node::List(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries = vec![];
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Node::Object(entries))
    }
}
