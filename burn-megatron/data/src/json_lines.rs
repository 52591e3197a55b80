//! JSON lines as people have them: what Python writes is taken, and what is no JSON lines is named with what to do.

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads the JSON of a line, without a byte-order mark. `NaN` and `Infinity`, which Python writes and JSON does not
/// have, are null.
///
/// # Errors
/// The line is no JSON: the error says where, and what to do with an array or an object over several lines.
pub fn parse<T: DeserializeOwned>(line: &str) -> Result<T, String> {
    let line = line.strip_prefix('\u{FEFF}').unwrap_or(line);
    let parsed = serde_json::from_str(line);
    let parsed = parsed.or_else(|error| match without_nan(line) {
        Cow::Borrowed(_) => Err(error),
        Cow::Owned(line) => serde_json::from_str(&line),
    });
    parsed
        .map_err(|error: serde_json::Error| hint(line, error.is_eof()).map_or_else(|| describe(&error), str::to_owned))
}

/// Reads the object of a line, as [`parse`] does.
///
/// # Errors
/// The line is no JSON, or something else than an object.
pub fn object(line: &str) -> Result<serde_json::Map<String, Value>, String> {
    match parse(line)? {
        Value::Object(object) => Ok(object),
        other => Err(no_object(line, kind(&other))),
    }
}

/// Reads a file of JSON, of which the numbers that JSON does not have are null.
pub(crate) fn value(content: &[u8]) -> Result<Value, serde_json::Error> {
    serde_json::from_slice(content).or_else(|error| {
        let text = String::from_utf8_lossy(content);
        serde_json::from_str(&without_nan(&text)).map_err(|_| error)
    })
}

/// Says that a line holds something of a kind that is no object.
pub(crate) fn no_object(line: &str, kind: &str) -> String {
    hint(line, false).map_or_else(|| format!("it is {kind}, and an object is wanted"), str::to_owned)
}

/// Returns the kind of a value, for people.
pub fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Returns some of the keys of an object, for people.
pub fn keys<'a>(keys: impl Iterator<Item = &'a str>) -> String {
    const NAMED: usize = 8;
    let all: Vec<&str> = keys.collect();
    let mut named: Vec<String> = all.iter().take(NAMED).map(|key| format!("\"{key}\"")).collect();
    if all.len() > NAMED {
        named.push(format!("{} more", all.len() - NAMED));
    }
    named.join(", ")
}

/// Says what to do with a line that is a part of a document of JSON.
fn hint(line: &str, is_cut: bool) -> Option<&'static str> {
    if line.trim_start().starts_with('[') {
        return Some(
            "it begins a JSON array, and one object on each line is wanted, which jq -c '.[]' FILE > FILE.jsonl writes",
        );
    }
    is_cut.then_some(
        "the object does not end on its line, and one whole object on each line is wanted, which jq -c . FILE > \
         FILE.jsonl writes",
    )
}

/// A line is all that the parser sees, so its own line number says nothing.
fn describe(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let message = message.split(" at line ").next().unwrap_or(&message);
    format!("column {}: {message}", error.column())
}

/// Writes null in place of the numbers that Python writes and JSON does not have.
pub(crate) fn without_nan(json: &str) -> Cow<'_, str> {
    with_numbers(json, |_| "null".to_owned())
}

/// Writes something else in place of `NaN`, `Infinity` and `-Infinity` outside of texts.
pub fn with_numbers(json: &str, written: impl Fn(&str) -> String) -> Cow<'_, str> {
    let mut replaced = String::new();
    let (mut taken, mut place) = (0, 0);
    let (mut in_text, bytes) = (false, json.as_bytes());
    while let Some(&byte) = bytes.get(place) {
        let rest = &bytes[place..];
        let number = ["NaN", "Infinity", "-Infinity"];
        let number = number.iter().find(|name| !in_text && rest.starts_with(name.as_bytes()));
        if let Some(number) = number {
            replaced.push_str(&json[taken..place]);
            replaced.push_str(&written(number));
            place += number.len();
            taken = place;
            continue;
        }
        match byte {
            b'"' => in_text = !in_text,
            // The escaped character ends no text.
            b'\\' if in_text => place += 1,
            _ => {}
        }
        place += 1;
    }
    if taken == 0 {
        return Cow::Borrowed(json);
    }
    replaced.push_str(&json[taken..]);
    Cow::Owned(replaced)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_of_python_are_null_outside_of_texts() {
        let line = r#"{"a": NaN, "b": [-Infinity, Infinity, 1.5], "NaN \" NaN": "Infinity\\"}"#;
        let expected = json!({ "a": null, "b": [null, null, 1.5], "NaN \" NaN": "Infinity\\" });
        assert_eq!(parse::<Value>(line).unwrap(), expected);
        assert!(parse::<Value>(r#"{"a": NaNs}"#).is_err());
        assert_eq!(parse::<Value>("\u{FEFF}{}").unwrap(), json!({}));
        assert!(matches!(without_nan(r#"{"a": "NaN"}"#), Cow::Borrowed(_)));
    }

    #[test]
    fn what_is_no_json_lines_is_named_with_what_to_do() {
        for (line, expected) in [
            (
                r#"[{"text": "a"}]"#,
                "it begins a JSON array, and one object on each line",
            ),
            ("[", "jq -c '.[]' FILE > FILE.jsonl"),
            ("{", "the object does not end on its line"),
            (r#"{"text": "a"#, "jq -c . FILE > FILE.jsonl"),
            ("5", "it is a number, and an object is wanted"),
            (r#"{"text": "a"} x"#, "column 15: trailing characters"),
        ] {
            let message = object(line).unwrap_err();
            assert!(message.contains(expected), "{line}: {message}");
        }
    }
}
