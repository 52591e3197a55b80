//! Names that the files, requests and command lines of other programs have: tables of their effects here, and one rule
//! for names and values that no table has.
//!
//! Names that cannot change a result are taken. One that is not known is refused if it may be meant for a known one, or
//! stands where all names have an effect; otherwise it is taken, with a warning.

use std::fmt::Display;

use serde::Serialize;
use serde_json::Value;

/// The most edits between two names of which one is taken for the other misspelt.
const SLIP: usize = 2;
/// The most characters of a value that a message shows.
const SHOWN: usize = 60;

/// Values, as JSON or as texts without quotes.
pub type Values = &'static [&'static str];

/// Names, and their effects here: a name is a line.
pub type Table = [(&'static str, Effect)];

/// The effect of a name here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Effect {
    /// It is read.
    Read,
    /// The effect of another name, or of other words.
    Means(&'static str),
    /// None: no result depends on it.
    Idle,
    /// None, and it is not listed either: it belongs to something else.
    Elsewhere,
    /// None with these values. Others would change the result, and are refused for this reason, which may be empty.
    Only(Values, &'static str),
    /// None unless another name, which is known too, is there.
    Needs(&'static str),
}

impl Effect {
    /// Checks that a value changes nothing, if the name has no effect with some values alone.
    ///
    /// # Errors
    /// It has another value.
    pub fn check(self, name: impl Display, value: &Value) -> Result<(), String> {
        match self {
            Self::Only(values, why) if !is_one_of(values, value) => Err(refusal(name, &value.to_string(), values, why)),
            _ => Ok(()),
        }
    }
}

/// Returns the effect of a name that is refused with any value.
pub const fn refused(why: &'static str) -> Effect {
    Effect::Only(&[], why)
}

/// Returns the effect of a name in the first of several tables that has it.
pub fn effect_of(tables: &[&Table], name: &str) -> Option<Effect> {
    let mut rows = tables.iter().copied().flatten();
    rows.find(|(known, _)| *known == name).map(|(_, effect)| *effect)
}

/// Returns the value that a table has as JSON, or as a text without quotes.
pub fn value_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

/// Returns whether two values are the same, 1 and 1.0 among them.
pub fn is_same(left: &Value, right: &Value) -> bool {
    left == right || left.as_f64().is_some_and(|number| right.as_f64() == Some(number))
}

/// Returns whether a value is one of a table's; keys of it that are null count as left out.
pub fn is_one_of(values: Values, value: &Value) -> bool {
    let mut value = value.clone();
    if let Value::Object(object) = &mut value {
        object.retain(|_, value| !value.is_null());
    }
    values.iter().any(|known| is_same(&value_of(known), &value))
}

/// Says that a name has a value, which may be empty, that would change the result.
pub fn refusal(name: impl Display, value: &str, values: Values, why: &str) -> String {
    let separator = if value.is_empty() { "" } else { " " };
    let advice = match (why, values) {
        ("", []) => "leave it out".to_owned(),
        ("", values) => format!("expected {}", values.join(" or ")),
        _ => why.to_owned(),
    };
    format!("{name}{separator}{} cannot be honoured: {advice}", shown(value))
}

/// Returns the beginning of a text that fits into a message.
pub fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Judges a name that is not known, of a section whose name is a prefix; `is_harmless` where not all names have an
/// effect. Returns a warning.
///
/// # Errors
/// It may be meant for a known name, or is not harmless: says what it is, and the nearest known name.
pub fn unknown<'a>(
    section: &str,
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
    is_harmless: bool,
) -> Result<String, String> {
    // In another case it is the same name.
    let lower = name.to_ascii_lowercase();
    let edits = |known: &'a str| (known, strsim::damerau_levenshtein(&known.to_ascii_lowercase(), &lower));
    let (nearest, edits) = known
        .into_iter()
        .map(edits)
        .min_by_key(|(_, edits)| *edits)
        .unwrap_or_default();
    let says = |effect: &str| {
        let name = shown(&name.escape_debug().to_string());
        format!("{section}{name} is not known{effect}: the nearest known name is {section}{nearest}")
    };
    // Of a short name a third may be another.
    let is_slip = edits <= SLIP.min(nearest.len() / 3);
    if is_slip || !is_harmless {
        return Err(says(""));
    }
    Ok(says(", and has no effect"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_names_are_taken_unless_they_are_mistakes() {
        let known = ["max_tokens", "n", "seed", "amp"];
        for (name, nearest, is_slip) in [
            ("max_token", "max_tokens", true),
            ("maxTokens", "max_tokens", true),
            ("MAX_TOKENS", "max_tokens", true),
            ("max_tokesn", "max_tokens", true),
            ("sed", "seed", true),
            ("N", "n", true),
            ("map", "amp", true),
            ("id", "n", false),
            ("max_context", "max_tokens", false),
        ] {
            let says = |effect: &str| format!("a.{name} is not known{effect}: the nearest known name is a.{nearest}");
            let harmless = says(", and has no effect");
            let expected = if is_slip { Err(says("")) } else { Ok(harmless) };
            assert_eq!(unknown("a.", name, known, true), expected);
            assert_eq!(unknown("a.", name, known, false), Err(says("")));
        }
        assert!(
            unknown("", &"\u{1b}".repeat(100), known, true)
                .unwrap()
                .starts_with("\\u{1b}\\u{1b}")
        );
    }

    #[test]
    fn values_that_change_nothing_are_taken_and_others_are_not() {
        let check = |effect: Effect, value: Value| effect.check("a", &value);
        assert_eq!(check(Effect::Idle, json!([1])), Ok(()));
        assert_eq!(check(Effect::Only(&["0", "none"], ""), json!(0.0)), Ok(()));
        assert_eq!(check(Effect::Only(&["0", "none"], ""), json!("none")), Ok(()));
        for (effect, expected) in [
            (Effect::Only(&["0", "none"], ""), "expected 0 or none"),
            (Effect::Only(&["0"], "it is 0"), "it is 0"),
            (refused(""), "leave it out"),
        ] {
            assert_eq!(
                check(effect, json!(3)),
                Err(format!("a 3 cannot be honoured: {expected}"))
            );
        }
        let long = check(refused("why"), json!("é".repeat(100))).unwrap_err();
        assert_eq!(long, format!("a \"{}… cannot be honoured: why", "é".repeat(59)));
    }
}
