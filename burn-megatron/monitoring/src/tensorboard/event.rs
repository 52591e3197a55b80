//! [`Event`]: what a record holds.

use std::time::{SystemTime, UNIX_EPOCH};

use super::histogram::Histogram;
use super::wire;

/// Of `DataType`: a tensor of strings.
const STRINGS: i64 = 7;
/// Of `DataClass`: a tensor.
const TENSOR: i64 = 2;

/// Something that happened at a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The version of the format, first in every file.
    Version,
    /// Values with their names.
    Values {
        /// The step, or the samples, that the values belong to.
        step: i64,
        /// The values.
        values: Vec<(String, Value)>,
    },
}

/// A value of an event.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number, kept in 32 bits.
    Scalar(f64),
    /// Text, shown as Markdown.
    Text(String),
    /// A distribution.
    Histogram(Histogram),
}

impl Event {
    /// Returns the protobuf message `Event`, dated in seconds since 1970.
    pub(super) fn encode(&self, seconds: f64) -> Vec<u8> {
        let mut buffer = Vec::new();
        wire::double(&mut buffer, 1, seconds);
        match self {
            Event::Version => wire::bytes(&mut buffer, 3, b"brain.Event:2"),
            Event::Values { step, values } => {
                wire::int64(&mut buffer, 2, *step);
                wire::message(&mut buffer, 5, |summary| {
                    for (tag, value) in values {
                        wire::message(summary, 1, |message| value.encode(tag, message));
                    }
                });
            }
        }
        buffer
    }
}

impl Value {
    /// Appends the fields of a `Summary.Value`.
    fn encode(&self, tag: &str, buffer: &mut Vec<u8>) {
        wire::bytes(buffer, 1, tag.as_bytes());
        match self {
            Value::Scalar(value) => wire::float(buffer, 2, *value as f32),
            Value::Histogram(histogram) => wire::message(buffer, 5, |message| histogram.encode(message)),
            Value::Text(text) => {
                wire::message(buffer, 8, |tensor| {
                    wire::int64(tensor, 1, STRINGS);
                    wire::message(tensor, 2, |shape| {
                        wire::message(shape, 2, |dimension| wire::int64(dimension, 1, 1));
                    });
                    wire::bytes(tensor, 8, text.as_bytes());
                });
                wire::message(buffer, 9, |metadata| {
                    wire::message(metadata, 1, |plugin| wire::bytes(plugin, 1, b"text"));
                    wire::int64(metadata, 4, TENSOR);
                });
            }
        }
    }
}

/// Returns the Markdown of a text that is shown as it is: each line is indented by four spaces, a Markdown code block.
pub fn verbatim(text: &str) -> String {
    text.split('\n')
        .map(|line| format!("    {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Seconds since 1970.
pub(super) fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}
