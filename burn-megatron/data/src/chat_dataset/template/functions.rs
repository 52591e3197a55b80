//! The functions and filters that templates of Hugging Face have, next to Jinja's own.

use jiff::civil::DateTime;
use jiff::fmt::strtime;
use minijinja::{Environment, Error, ErrorKind, State, Value, escape_formatter};
use minijinja_contrib::pycompat::unknown_method_callback;

use super::filters::{failed, truncate, urlencode, wordcount};
use super::to_json::to_json;
use crate::chat_dataset::numbers::as_float;

/// Adds `raise_exception`, `strftime_now` (which takes `time` for now), filters, and the methods of Python's types.
/// Numbers are written as Python writes them.
pub(super) fn add(environment: &mut Environment<'static>, time: DateTime) {
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", move |format: String| {
        strtime::format(&format, time).map_err(|error| failed(&format!("strftime_now({format:?})"), error))
    });
    environment.add_filter("string", |value: &Value| {
        as_float(value).unwrap_or_else(|| value.to_string())
    });
    environment.add_filter("tojson", to_json);
    environment.add_filter("truncate", truncate);
    environment.add_filter("urlencode", urlencode);
    environment.add_filter("wordcount", wordcount);
    environment.set_formatter(|out, state, value| match as_float(value) {
        Some(text) => escape_formatter(out, state, &Value::from(text)),
        None => escape_formatter(out, state, value),
    });
    environment.set_unknown_method_callback(method);
}

/// A method of Python's strings, lists or dictionaries.
fn method(state: &mut State, value: &Value, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    match (value.as_str(), name, arguments) {
        (Some(text), "title", []) => Ok(Value::from(title(text))),
        _ => unknown_method_callback(state, value, name, arguments),
    }
}

/// Python's `str.title`: a letter is large where none is before it, whatever else is.
fn title(text: &str) -> String {
    let mut previous = ' ';
    let mut titled = String::with_capacity(text.len());
    for character in text.chars() {
        if previous.is_alphabetic() {
            titled.extend(character.to_lowercase());
        } else {
            titled.extend(character.to_uppercase());
        }
        previous = character;
    }
    titled
}
