//! `JsonValue`: JSON as a value of templates, whose objects keep the order of their keys.

use std::fmt;
use std::sync::Arc;

use minijinja::Value;
use minijinja::value::{Enumerator, Object};
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

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
        // Of equal keys the last counts, as in Python.
        let found = self.0.iter().rfind(|(name, _)| **name == *key);
        found.map(|(_, value)| value.clone())
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.0.iter().map(|(name, _)| Value::from(name.clone())).collect())
    }
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
        Ok(Value::from_object(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Value, A::Error> {
        let mut entries: Vec<(Arc<str>, Value)> = vec![];
        while let Some((name, JsonValue(value))) = object.next_entry::<String, _>()? {
            entries.retain(|(other, _)| **other != *name);
            entries.push((name.into(), value));
        }
        Ok(Value::from_object(OrderedObject(entries)))
    }
}
