//! Filters of Jinja that minijinja does not have.

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Error, ErrorKind, Value};

/// Words of a text: runs of letters, digits and underscores.
pub(super) fn wordcount(text: &Value) -> usize {
    let text = text.to_string();
    let words = text.split(|character: char| !(character.is_alphanumeric() || character == '_'));
    words.filter(|word| !word.is_empty()).count()
}

/// `truncate(length=255, killwords=False, end='...', leeway=5)`: a text that is more than `leeway` characters longer
/// than `length` is cut, between words unless `killwords`, and has `end` at its end.
pub(super) fn truncate(text: &Value, places: Rest<Value>, names: Kwargs) -> Result<String, Error> {
    let get = |place: usize, name: &str| -> Result<Option<Value>, Error> {
        let named = names.get::<Option<Value>>(name)?;
        Ok(named.or(places.get(place).cloned()).filter(|value| !value.is_none()))
    };
    let number = |value: Option<Value>, default: usize| value.map_or(Ok(default), usize::try_from);
    let length = number(get(0, "length")?, 255)?;
    let cuts_words = get(1, "killwords")?.is_some_and(|value| value.is_true());
    let end = get(2, "end")?.map_or_else(|| "...".to_owned(), |end| end.to_string());
    let leeway = number(get(3, "leeway")?, 5)?;
    names.assert_all_used()?;
    let kept = length.checked_sub(end.chars().count());
    let kept = kept.ok_or_else(|| {
        failed(
            "truncate",
            format!("expected a length of \"{end}\" or more, got {length}"),
        )
    })?;
    let text = text.to_string();
    if text.chars().count() <= length.saturating_add(leeway) {
        return Ok(text);
    }
    let cut: String = text.chars().take(kept).collect();
    let words = if cuts_words {
        &*cut
    } else {
        cut.rsplit_once(' ').map_or(&*cut, |(words, _)| words)
    };
    Ok([words, &end].concat())
}

/// A text as a part of a URL; pairs, or a dictionary, as its query.
pub(super) fn urlencode(value: &Value) -> Result<String, Error> {
    let pairs = match value.kind() {
        ValueKind::Map => value
            .try_iter()?
            .map(|key| Ok([key.clone(), value.get_item(&key)?]))
            .collect(),
        ValueKind::Seq | ValueKind::Iterable => {
            let pair = |pair: Value| Ok([pair.get_item_by_index(0)?, pair.get_item_by_index(1)?]);
            value.try_iter()?.map(pair).collect()
        }
        _ => return Ok(quoted(&value.to_string(), "/")),
    };
    let pairs: Result<Vec<[Value; 2]>, Error> = pairs;
    let part = |value: &Value| quoted(&value.to_string(), "").replace("%20", "+");
    let pairs = pairs?
        .into_iter()
        .map(|[key, value]| format!("{}={}", part(&key), part(&value)));
    Ok(pairs.collect::<Vec<_>>().join("&"))
}

/// Python's `urllib.parse.quote`.
fn quoted(text: &str, safe: &str) -> String {
    let quote = |byte: u8| match char::from(byte) {
        kept if kept.is_ascii_alphanumeric() || "_.-~".contains(kept) || safe.contains(kept) => kept.to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(quote).collect()
}

/// An error of a function or filter.
pub(super) fn failed(what: &str, error: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("{what}: {error}"))
}
