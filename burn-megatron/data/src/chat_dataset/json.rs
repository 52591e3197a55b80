//! `JsonValue`: JSON as a value of templates, whose objects keep the order of their keys.
//!
//! serde_json and minijinja do that with features which other crates then get too, and burn is built a second time.

use std::fmt;
use std::sync::Arc;

use minijinja::Value;
use minijinja::value::{Enumerator, Object, ObjectRepr};
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::numbers::as_float;

/// A value that was read from JSON.
#[derive(Debug, Clone, Default)]
pub(super) struct JsonValue(pub(super) Value);

/// An object, its keys in the order in which they are written, as Python's dictionaries have them.
#[derive(Debug)]
pub(super) struct OrderedObject(pub(super) Vec<(Arc<str>, Value)>);

impl Object for OrderedObject {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        let found = self.0.iter().find(|(name, _)| **name == *key);
        found.map(|(_, value)| value.clone())
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.0.iter().map(|(name, _)| Value::from(name.clone())).collect())
    }

    fn render(self: &Arc<Self>, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self
            .0
            .iter()
            .map(|(name, value)| format!("{:?}: {}", Value::from(name.clone()), part(value)));
        write!(formatter, "{{{}}}", entries.collect::<Vec<_>>().join(", "))
    }
}

#[derive(Debug)]
pub(super) struct JsonList(pub(super) Vec<Value>);

impl Object for JsonList {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.0.get(key.as_usize()?).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.0.len())
    }

    fn render(self: &Arc<Self>, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "[{}]",
            self.0.iter().map(part).collect::<Vec<_>>().join(", ")
        )
    }
}

/// A value as Python writes it in a list.
fn part(value: &Value) -> String {
    as_float(value).unwrap_or_else(|| format!("{value:?}"))
}

impl<'de> Deserialize<'de> for JsonValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor).map(Self)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value of JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::from(()))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values: Vec<Value> = vec![];
        while let Some(JsonValue(value)) = list.next_element()? {
            values.push(value);
        }
        Ok(Value::from_object(JsonList(values)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Value, A::Error> {
        let mut entries: Vec<(Arc<str>, Value)> = vec![];
        while let Some((name, JsonValue(value))) = object.next_entry::<String, _>()? {
            // A key that comes again has its first place and its last value, as in Python.
            match entries.iter_mut().find(|(other, _)| **other == *name) {
                Some((_, old)) => *old = value,
                None => entries.push((name.into(), value)),
            }
        }
        Ok(Value::from_object(OrderedObject(entries)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_pythons_order() {
        let JsonValue(object) = serde_json::from_str(r#"{"b": 1, "a": 2, "b": {"d": 3, "c": 4}}"#).unwrap();
        assert_eq!(object.to_string(), "{'b': {'d': 3, 'c': 4}, 'a': 2}");
        let JsonValue(list) = serde_json::from_str(r#"["a'b", 1e-7, [2.0, null], {"c": 1e20}]"#).unwrap();
        assert_eq!(list.to_string(), "[\"a'b\", 1e-07, [2.0, None], {'c': 1e+20}]");
        assert_eq!(object.get_attr("b").unwrap().get_attr("c").unwrap(), Value::from(4));
    }
}
