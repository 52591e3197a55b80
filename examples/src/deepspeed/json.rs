//! [`Node`]: JSON with the order of its keys, and with those that are written twice; with the comments and the commas
//! at ends that DeepSpeed's reader takes, and the infinities that Python writes.

use std::fmt;

use burn_megatron_data::names::shown;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};

use super::ConfigError;
use super::keys::Depth;

/// Characters of a value that a message shows.
const SHOWN: usize = 60;
/// Words of Python for numbers that are not finite; the longest first of those that end alike.
const NOT_FINITE: [&str; 3] = ["-Infinity", "Infinity", "NaN"];
/// Before one of these in a text that stands for it.
const MARK: char = '\u{1}';

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    Null,
    Bool(bool),
    Number(Number),
    /// `Infinity`, `-Infinity` or `NaN`.
    NotFinite(&'static str),
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
        let node: Self = serde_json::from_str(&strict(text)).map_err(|error| not_json(text, &error))?;
        node.check_keys("")?;
        Ok(node)
    }

    /// Returns the number or the bool that a text spells, as files have them that were made of other languages; else
    /// the node itself.
    pub(super) fn spelled(&self) -> Self {
        let Node::Text(text) = self else {
            return self.clone();
        };
        let text = text.trim();
        let word = NOT_FINITE.into_iter().find(|word| text.eq_ignore_ascii_case(word));
        match serde_json::from_str(&text.to_ascii_lowercase()) {
            Ok(Value::Number(number)) => Node::Number(number),
            Ok(Value::Bool(value)) => Node::Bool(value),
            _ => word.map_or_else(|| self.clone(), Node::NotFinite),
        }
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

    /// Returns whether it is `"auto"`, which stands for what the flags say.
    pub(super) fn is_auto(&self) -> bool {
        *self == Node::Text("auto".to_owned())
    }

    /// Returns the values of a key in an object, or also in the objects inside.
    pub(super) fn values_of(&self, name: &str, depth: Depth) -> Vec<&Node> {
        let Node::Object(entries) = self else {
            return vec![];
        };
        let own = entries.iter().filter(|(key, _)| key == name).map(|(_, node)| node);
        let inside = entries.iter().filter(|_| depth == Depth::All);
        own.chain(inside.flat_map(|(_, node)| node.values_of(name, depth)))
            .collect()
    }

    pub(super) fn to_value(&self) -> Value {
        match self {
            Node::Null => Value::Null,
            Node::Bool(value) => Value::Bool(*value),
            Node::Number(number) => Value::Number(number.clone()),
            Node::NotFinite(word) => Value::String((*word).to_owned()),
            Node::Text(text) => Value::String(text.clone()),
            Node::List(nodes) => Value::Array(nodes.iter().map(Node::to_value).collect()),
            Node::Object(entries) => {
                let entry = |(key, node): &(String, Node)| (key.clone(), node.to_value());
                Value::Object(entries.iter().map(entry).collect())
            }
        }
    }
}

/// Returns a text as strict JSON, each line with its own number: without comments (`#`, `//`, `/* */`) and commas
/// before closing brackets, and numbers that are not finite as marked texts.
fn strict(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    // Where the last comma is, if nothing has followed it yet.
    let mut comma = None;
    while let Some(next) = rest.chars().next() {
        let comment = [("#", "\n"), ("//", "\n"), ("/*", "*/")]
            .into_iter()
            .find(|(start, _)| rest.starts_with(start));
        let word = NOT_FINITE.into_iter().find(|word| rest.starts_with(word));
        let length = match (comment, word) {
            (Some((_, "\n")), _) => rest.find('\n').unwrap_or(rest.len()),
            (Some((start, end)), _) => rest[start.len()..]
                .find(end)
                .map_or(rest.len(), |at| start.len() + at + end.len()),
            (None, Some(word)) => word.len(),
            (None, None) if next == '"' => end_of_string(rest),
            (None, None) => next.len_utf8(),
        };
        let (piece, after) = rest.split_at(length);
        rest = after;
        if comment.is_some() {
            out.extend(piece.chars().map(|letter| if letter == '\n' { '\n' } else { ' ' }));
            continue;
        }
        if matches!(next, '}' | ']')
            && let Some(at) = comma
        {
            out.replace_range(at..=at, " ");
        }
        if !next.is_whitespace() {
            comma = (next == ',').then_some(out.len());
        }
        match word {
            Some(word) => out.push_str(&format!("\"\\u0001{word}\"")),
            None => out.push_str(piece),
        }
    }
    out
}

/// Returns the length of the string that a text begins with, or of all of it.
fn end_of_string(text: &str) -> usize {
    let mut is_escaped = false;
    let end = text.char_indices().skip(1).find(|(_, letter)| {
        let is_end = *letter == '"' && !is_escaped;
        is_escaped = *letter == '\\' && !is_escaped;
        is_end
    });
    end.map_or(text.len(), |(at, _)| at + 1)
}

/// Says where a text is no JSON, and what stands there.
fn not_json(text: &str, error: &serde_json::Error) -> ConfigError {
    let (line, column) = (error.line(), error.column());
    let found = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
    let shown: String = found
        .chars()
        .skip(column.saturating_sub(SHOWN / 2))
        .take(SHOWN)
        .collect();
    ConfigError::NotJson(match error.classify() {
        serde_json::error::Category::Eof => format!("the text ends in line {line}, with brackets or quotes open"),
        _ => format!("line {line} cannot be read at column {column}: {}", shown.trim()),
    })
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
        let text = match self {
            Node::NotFinite(word) => (*word).to_owned(),
            node => node.to_value().to_string(),
        };
        formatter.write_str(&shown(&text))
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
        let word = value.strip_prefix(MARK);
        Ok(match NOT_FINITE.into_iter().find(|known| word == Some(known)) {
            Some(word) => Node::NotFinite(word),
            None => Node::Text(value.to_owned()),
        })
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
