//! [`Event`]: what a record holds.

use std::time::{SystemTime, UNIX_EPOCH};

use prost::Message as _;

use super::histogram::Histogram;
use super::messages;

/// Of `DataType`: a tensor of strings.
const STRINGS: i32 = 7;
/// Of `DataClass`: a tensor.
const TENSOR: i32 = 2;

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
        let (step, what) = match self {
            Event::Version => (0, messages::What::FileVersion("brain.Event:2".to_owned())),
            Event::Values { step, values } => {
                let value = values.iter().map(|(tag, value)| value.message(tag)).collect();
                (*step, messages::What::Summary(messages::Summary { value }))
            }
        };
        let event = messages::Event {
            wall_time: seconds,
            step,
            what: Some(what),
        };
        event.encode_to_vec()
    }
}

impl Value {
    /// Returns the message `Summary.Value`.
    fn message(&self, tag: &str) -> messages::Value {
        let kind = match self {
            Value::Scalar(value) => messages::Kind::Simple(*value as f32),
            Value::Histogram(histogram) => messages::Kind::Histogram(histogram.0.clone()),
            Value::Text(text) => messages::Kind::Tensor(messages::Tensor {
                dtype: STRINGS,
                shape: Some(messages::Shape {
                    dimensions: vec![messages::Dimension { size: 1 }],
                }),
                strings: vec![text.clone().into_bytes()],
            }),
        };
        let text = || messages::Metadata {
            plugin: Some(messages::Plugin {
                name: "text".to_owned(),
            }),
            data_class: TENSOR,
        };
        messages::Value {
            tag: Some(tag.to_owned()),
            metadata: matches!(self, Value::Text(_)).then(text),
            kind: Some(kind),
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
