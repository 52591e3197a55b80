//! The filter `tojson`, which is Python's `json.dumps`.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, Value};

use super::filters::failed;
use crate::chat_dataset::numbers::as_float;

/// `json.dumps(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`, with these options by name.
pub(super) fn to_json(value: &Value, arguments: Kwargs) -> Result<String, Error> {
    let get = |name| arguments.get::<Option<Value>>(name);
    let indent = get("indent")?.filter(|indent| !indent.is_none());
    let indent = indent.map(|indent| match usize::try_from(indent.clone()) {
        Ok(spaces) => " ".repeat(spaces.min(64)),
        Err(_) => indent.to_string(),
    });
    let mut separators = [if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned()];
    if let Some(given) = get("separators")?.filter(|given| !given.is_none()) {
        let given: Vec<String> = given.try_iter()?.map(|separator| separator.to_string()).collect();
        separators = <[String; 2]>::try_from(given).map_err(|_| failed("tojson", "separators are two texts"))?;
    }
    let is_set = |name| Ok::<_, Error>(get(name)?.is_some_and(|value| value.is_true()));
    let mut writer = Writer {
        ensure_ascii: is_set("ensure_ascii")?,
        sort_keys: is_set("sort_keys")?,
        indent,
        separators,
        text: String::new(),
    };
    arguments.assert_all_used()?;
    writer.value(value, 0)?;
    Ok(writer.text)
}

struct Writer {
    ensure_ascii: bool,
    sort_keys: bool,
    indent: Option<String>,
    /// Between values, and after keys.
    separators: [String; 2],
    text: String,
}

impl Writer {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => self.text.push_str("null"),
            ValueKind::Bool => self.text.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => match as_float(value).as_deref() {
                Some("nan") => self.text.push_str("NaN"),
                Some("inf") => self.text.push_str("Infinity"),
                Some("-inf") => self.text.push_str("-Infinity"),
                Some(float) => self.text.push_str(float),
                None => self.text.push_str(&value.to_string()),
            },
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let values = value.try_iter()?.map(|value| (None, value)).collect();
                self.container(['[', ']'], values, depth)?;
            }
            ValueKind::Map => {
                let mut entries = vec![];
                for key in value.try_iter()? {
                    let value = value.get_item(&key)?;
                    entries.push((Some(key), value));
                }
                if self.sort_keys {
                    entries.sort_by_key(|(key, _)| key.as_ref().map(Value::to_string));
                }
                self.container(['{', '}'], entries, depth)?;
            }
            other => return Err(failed("tojson", format!("{other} cannot be written as JSON"))),
        }
        Ok(())
    }

    fn container(
        &mut self,
        [open, close]: [char; 2],
        entries: Vec<(Option<Value>, Value)>,
        depth: usize,
    ) -> Result<(), Error> {
        self.text.push(open);
        let is_empty = entries.is_empty();
        for (place, (key, value)) in entries.into_iter().enumerate() {
            if place > 0 {
                self.text.push_str(&self.separators[0]);
            }
            self.begin_line(depth + 1);
            if let Some(key) = key {
                match key.kind() {
                    ValueKind::String => self.string(key.as_str().unwrap_or_default()),
                    // Keys of other kinds become texts of their JSON.
                    _ => {
                        self.text.push('"');
                        self.value(&key, 0)?;
                        self.text.push('"');
                    }
                }
                self.text.push_str(&self.separators[1]);
            }
            self.value(&value, depth + 1)?;
        }
        if !is_empty {
            self.begin_line(depth);
        }
        self.text.push(close);
        Ok(())
    }

    fn begin_line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.text.push('\n');
            self.text.push_str(&indent.repeat(depth));
        }
    }

    fn string(&mut self, text: &str) {
        self.text.push('"');
        for character in text.chars() {
            let short = match character {
                '"' => "\\\"",
                '\\' => "\\\\",
                '\n' => "\\n",
                '\r' => "\\r",
                '\t' => "\\t",
                '\u{8}' => "\\b",
                '\u{c}' => "\\f",
                other => {
                    if other < ' ' || self.ensure_ascii && !other.is_ascii() {
                        for unit in other.encode_utf16(&mut [0; 2]) {
                            self.text.push_str(&format!("\\u{unit:04x}"));
                        }
                    } else {
                        self.text.push(other);
                    }
                    continue;
                }
            };
            self.text.push_str(short);
        }
        self.text.push('"');
    }
}
