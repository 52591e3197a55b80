//! [`Fields`]: the fields of a request, by tables of what each API knows.

use std::fmt::Display;

use burn_megatron_data::names::{Effect, Table, effect_of, refused, shown, unknown};
use serde_json::error::Category;
use serde_json::{Map, Value};

use super::error::ApiError;

/// No value: null alone, which is as if the field were not there.
pub(super) const NEVER: Effect = refused("");
pub(super) const FALSE: Effect = Effect::Only(&["false"], "");
pub(super) const TRUE: Effect = Effect::Only(&["true"], "");
pub(super) const ZERO: Effect = Effect::Only(&["0"], "");
pub(super) const ONE: Effect = Effect::Only(&["1"], "");
/// A text, a list or an object of nothing.
pub(super) const EMPTY: Effect = Effect::Only(&["\"\"", "[]", "{}"], "leave it out");

/// The fields of a request that are not null.
#[derive(Debug)]
pub(super) struct Fields {
    values: Map<String, Value>,
    /// Warnings of names that no table has.
    pub(super) unknown: Vec<String>,
    /// The path before names in messages.
    path: String,
}

impl Fields {
    /// Reads a body of JSON.
    ///
    /// # Errors
    /// 400: it is no object, or has a field that is not supported or is likely a mistake.
    pub(super) fn parse(body: &[u8], tables: &[&Table]) -> Result<Self, ApiError> {
        let value = serde_json::from_slice(body).map_err(|error| {
            ApiError::bad_request(match error.classify() {
                Category::Eof => "the body ends before its JSON does".to_owned(),
                _ => format!(
                    "the body is no JSON, from line {}, column {} on",
                    error.line(),
                    error.column()
                ),
            })
        })?;
        Self::of(value, "", tables)
    }

    /// Takes an object of a request; `path` is what its fields' names begin with in messages.
    pub(super) fn of(value: Value, path: &str, tables: &[&Table]) -> Result<Self, ApiError> {
        let Value::Object(mut values) = value else {
            let what = path.strip_suffix('.').unwrap_or("a request");
            return Err(wrong(what, "an object with fields", &value));
        };
        values.retain(|_, value| !value.is_null());
        let mut warnings = Vec::new();
        for (name, value) in &values {
            let checked = match effect_of(tables, name) {
                Some(effect) => effect.check(format_args!("{path}{name}"), value),
                None => {
                    let known = tables.iter().copied().flatten().map(|(known, _)| *known);
                    unknown(path, name, known, true).map(|warning| warnings.push(warning))
                }
            };
            checked.map_err(ApiError::bad_request)?;
        }
        Ok(Self {
            values,
            unknown: warnings,
            path: path.to_owned(),
        })
    }

    /// Takes a field as it is.
    pub(super) fn take(&mut self, name: &str) -> Option<Value> {
        self.values.remove(name)
    }

    /// Takes a field by what `read` makes of its value, which must be `expected`.
    pub(super) fn read<T>(
        &mut self,
        name: &str,
        expected: impl Display,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, ApiError> {
        let read = |value| read(&value).ok_or_else(|| wrong(&format!("{}{name}", self.path), expected, &value));
        self.values.remove(name).map(read).transpose()
    }

    pub(super) fn flag(&mut self, name: &str) -> Result<Option<bool>, ApiError> {
        self.read(name, "true or false", Value::as_bool)
    }

    /// Takes a flag that is false where it is left out.
    pub(super) fn is_set(&mut self, name: &str) -> Result<bool, ApiError> {
        Ok(self.flag(name)? == Some(true))
    }

    pub(super) fn text(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        self.read(name, "a text", |value| value.as_str().map(str::to_owned))
    }

    pub(super) fn number(&mut self, name: &str) -> Result<Option<f64>, ApiError> {
        self.read(name, "a number", Value::as_f64)
    }

    pub(super) fn count(&mut self, name: &str) -> Result<Option<usize>, ApiError> {
        self.read(name, "a whole number from 0 on", count)
    }

    /// Takes a seed: any whole number of 64 bits. −1 is none.
    pub(super) fn seed(&mut self, name: &str) -> Result<Option<u64>, ApiError> {
        let seed = self.read(name, "a whole number of 64 bits", |value| match whole(value)? {
            -1 => Some(None),
            seed => Some(Some(
                u64::try_from(seed)
                    .or(i64::try_from(seed).map(i64::cast_unsigned))
                    .ok()?,
            )),
        })?;
        Ok(seed.flatten())
    }
}

/// Returns a whole number, also one that is written with a point.
pub(super) fn whole(value: &Value) -> Option<i128> {
    let of_float = || {
        value
            .as_f64()
            .filter(|value| value.fract() == 0.0 && value.abs() < 1e15)
    };
    let of_integer = value.as_i64().map(i128::from).or(value.as_u64().map(i128::from));
    of_integer.or_else(|| of_float().map(|value| value as i128))
}

/// Returns a whole number that counts something.
pub(super) fn count(value: &Value) -> Option<usize> {
    usize::try_from(whole(value)?).ok()
}

/// Returns a token's number.
pub(super) fn token(value: &Value) -> Option<u32> {
    u32::try_from(whole(value)?).ok()
}

/// Returns the elements of a list.
pub(super) fn list<T>(value: &Value, of: impl FnMut(&Value) -> Option<T>) -> Option<Vec<T>> {
    value.as_array()?.iter().map(of).collect()
}

/// Returns the error of a field with a value of another kind.
pub(super) fn wrong(name: &str, expected: impl Display, value: &Value) -> ApiError {
    ApiError::bad_request(format!("{name} must be {expected}, got {}", shown(&value.to_string())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TABLE: &Table = &[
        ("max_tokens", Effect::Read),
        ("n", Effect::Read),
        ("seed", Effect::Read),
        ("user", Effect::Elsewhere),
        ("min_tokens", ZERO),
    ];

    fn fields(value: Value) -> Result<Fields, String> {
        Fields::of(value, "", &[TABLE]).map_err(|error| error.message)
    }

    #[test]
    fn fields_are_judged_by_their_table() {
        let taken = fields(json!({"user": {"any": [1]}, "min_tokens": 0.0, "seed": null, "nothing": null})).unwrap();
        assert!(taken.unknown.is_empty());
        assert!(fields(json!({"id": 1})).unwrap().unknown[0].starts_with("id is not known, and has no effect"));
        for (value, error) in [
            (json!({"min_tokens": 3}), "min_tokens 3 cannot be honoured: expected 0"),
            (json!({"sed": 3}), "sed is not known: the nearest known name is seed"),
        ] {
            assert_eq!(fields(value).unwrap_err(), error);
        }
    }

    #[test]
    fn a_request_is_an_object() {
        for value in [json!([]), json!([null, "a", 5]), json!("a"), json!(null)] {
            let error = fields(value.clone()).unwrap_err();
            assert_eq!(error, format!("a request must be an object with fields, got {value}"));
        }
        for (body, message) in [
            ("", "the body ends before its JSON does"),
            ("{\"n\": 1,", "the body ends before its JSON does"),
            ("{\n \"n\": 1,}", "the body is no JSON, from line 2, column 9 on"),
        ] {
            assert_eq!(Fields::parse(body.as_bytes(), &[TABLE]).unwrap_err().message, message);
        }
    }

    #[test]
    fn kinds_are_named_and_whole_numbers_may_have_a_point() {
        let read = |value: Value| fields(json!({"n": value, "seed": value, "max_tokens": value})).unwrap();
        assert_eq!(read(json!(3.0)).count("n").unwrap(), Some(3));
        let error = read(json!("3")).count("n").unwrap_err().message;
        assert_eq!(error, "n must be a whole number from 0 on, got \"3\"");
        assert!(read(json!(3.5)).count("n").is_err() && read(json!(-1)).count("n").is_err());
        assert!(read(json!(true)).number("n").is_err());
        for (seed, expected) in [
            (json!(-1), None),
            (json!(-2), Some(u64::MAX - 1)),
            (json!(u64::MAX), Some(u64::MAX)),
            (json!(7.0), Some(7)),
        ] {
            assert_eq!(read(seed).seed("seed").unwrap(), expected);
        }
        assert!(read(json!(1e30)).seed("seed").is_err());
        let long = read(json!("x".repeat(100))).flag("max_tokens").unwrap_err().message;
        assert_eq!(
            long,
            format!("max_tokens must be true or false, got \"{}…", "x".repeat(59))
        );
    }
}
