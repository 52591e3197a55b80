//! The functions and filters that templates of Hugging Face have, next to Jinja's own.

use std::io;

use jiff::civil::DateTime;
use jiff::fmt::strtime;
use minijinja::value::Kwargs;
use minijinja::{Environment, Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

/// Adds `raise_exception`, `strftime_now` (which takes `time` for now), `tojson`, and the methods of Python's types.
pub(super) fn add(environment: &mut Environment<'static>, time: DateTime) {
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", move |format: String| {
        strtime::format(&format, time).map_err(|error| failed(&format!("strftime_now({format:?})"), error))
    });
    environment.add_filter("tojson", to_json);
    environment.set_unknown_method_callback(method);
}

fn failed(what: &str, error: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("{what}: {error}"))
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

/// `json.dumps(value, ensure_ascii=False, indent=indent)`.
fn to_json(value: &Value, arguments: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = arguments.get("indent")?;
    // Other characters than those of ASCII stay as they are, which templates may ask for.
    if arguments.get::<Option<bool>>("ensure_ascii")? == Some(true) {
        return Err(failed("tojson", "ensure_ascii=True is not supported"));
    }
    arguments.assert_all_used()?;
    let mut json = vec![];
    let written = match indent {
        None => value.serialize(&mut Serializer::with_formatter(&mut json, PythonFormatter)),
        Some(indent) => {
            let indent = " ".repeat(indent.min(64));
            let formatter = PrettyFormatter::with_indent(indent.as_bytes());
            value.serialize(&mut Serializer::with_formatter(&mut json, formatter))
        }
    };
    written.map_err(|error| failed("tojson", error))?;
    String::from_utf8(json).map_err(|error| failed("tojson", error))
}

/// A space after each comma and colon.
struct PythonFormatter;

impl Formatter for PythonFormatter {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        writer.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        writer.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}
