//! [`TaskData`]: what the file of a task holds.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use burn_megatron_data::json_lines;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::arguments::TaskKind;

/// What the file of a task holds, and its hash.
pub(super) struct TaskData {
    pub(super) content: Content,
    /// The SHA-256 of the file, in hexadecimal digits.
    pub(super) sha256: String,
}

/// What the file of a task holds.
pub(super) enum Content {
    /// Of `wikitext`.
    Text(String),
    /// Of `lambada`.
    Passages(Vec<Line<Passage>>),
    /// Of `multiple-choice`.
    Questions(Vec<Line<Question>>),
}

/// What a line of a file holds.
#[derive(Debug)]
pub(super) struct Line<T> {
    /// Its number, from 1.
    pub(super) number: usize,
    pub(super) item: T,
}

/// A text whose last word is asked for.
#[derive(Debug)]
pub(super) struct Passage {
    pub(super) text: String,
}

/// A text and several that may follow it.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) context: String,
    pub(super) choices: Vec<String>,
    /// Numbers of the right choices, from 0.
    pub(super) gold: Vec<usize>,
}

/// The fields of a line that are read.
trait Item: Sized {
    /// The form of a line, for people.
    const FORM: &'static str;

    /// Reads the object of a line.
    fn read(object: &Map<String, Value>) -> anyhow::Result<Self>;
}

impl TaskData {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// When it cannot be read or is empty, or a line is not what the task has, naming file and line.
    pub(super) fn read(kind: TaskKind, path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let bytes = fs::read(path).with_context(|| format!("--data {shown}"))?;
        let sha256 = Sha256::digest(&bytes)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let text = String::from_utf8(bytes).map_err(|error| {
            let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            anyhow::anyhow!("{shown}:{line}: a byte that is not UTF-8")
        })?;
        ensure!(!text.trim().is_empty(), "--data {shown} is empty");
        let content = match kind {
            TaskKind::Wikitext => Content::Text(text),
            TaskKind::Lambada => Content::Passages(lines(&text, path)?),
            TaskKind::MultipleChoice => Content::Questions(lines(&text, path)?),
        };
        Ok(Self { content, sha256 })
    }
}

/// The items of a file of JSON lines. Blank lines are passed over.
fn lines<T: Item>(text: &str, path: &Path) -> anyhow::Result<Vec<Line<T>>> {
    let item = |(index, line): (usize, &str)| {
        let number = index + 1;
        let object = json_lines::object(line).map_err(anyhow::Error::msg);
        let item = object.and_then(|object| T::read(&object));
        let item = item.with_context(|| format!("{}:{number}", path.display()))?;
        Ok(Line { number, item })
    };
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.map(item).collect()
}

/// The value of the first of these keys that an object has.
fn value<'a, T: Item>(object: &'a Map<String, Value>, keys: &[&str]) -> anyhow::Result<&'a Value> {
    let found = keys.iter().find_map(|key| object.get(*key));
    found.with_context(|| {
        let present = json_lines::keys(object.keys().map(String::as_str));
        format!(
            "no key \"{}\", there are {present}; a line is {}",
            keys.join("\" or \""),
            T::FORM
        )
    })
}

fn text<'a>(name: &str, value: &'a Value) -> anyhow::Result<&'a str> {
    value
        .as_str()
        .with_context(|| format!("\"{name}\" is {}, and a text is wanted", json_lines::kind(value)))
}

impl Passage {
    /// The text before the last word, without the space between them, and that word.
    pub(super) fn split(&self) -> Option<(&str, &str)> {
        let (context, word) = self.text.trim_end().rsplit_once(' ')?;
        (!context.trim().is_empty()).then_some((context, word))
    }
}

impl Item for Passage {
    const FORM: &'static str = r#"{"text": "…"}"#;

    fn read(object: &Map<String, Value>) -> anyhow::Result<Self> {
        let passage = Self {
            text: text("text", value::<Self>(object, &["text"])?)?.to_owned(),
        };
        ensure!(
            passage.split().is_some(),
            "a text of two words at least, with a space between them, is needed, got \"{}\"",
            passage.text.trim()
        );
        Ok(passage)
    }
}

impl Item for Question {
    const FORM: &'static str = r#"{"query": "…", "choices": ["…", "…"], "gold": 0}"#;

    fn read(object: &Map<String, Value>) -> anyhow::Result<Self> {
        let context = text("query", value::<Self>(object, &["query", "context"])?)?;
        let choices = value::<Self>(object, &["choices"])?;
        let choices = choices.as_array();
        let choices = choices.with_context(|| format!("\"choices\" is a list of texts; a line is {}", Self::FORM))?;
        let choices = choices.iter().map(|choice| text("choices", choice).map(str::to_owned));
        let choices = choices.collect::<anyhow::Result<Vec<_>>>()?;
        ensure!(
            choices.len() > 1,
            "two choices at least are needed, got {}",
            choices.len()
        );
        if let Some(number) = choices.iter().position(String::is_empty) {
            bail!("choice {number} is empty");
        }
        let given = value::<Self>(object, &["gold"])?;
        let gold = match given.as_array() {
            Some(several) => several.iter().map(|gold| right_choice(gold, &choices)).collect(),
            None => right_choice(given, &choices).map(|gold| vec![gold]),
        };
        let gold: Option<Vec<usize>> = gold;
        let gold = gold.filter(|gold| !gold.is_empty());
        let gold = gold.with_context(|| {
            format!(
                "\"gold\" is the number of a choice, from 0 to {}, its text, its letter (A for the first), or a list \
                 of such, got {given}",
                choices.len() - 1
            )
        })?;
        Ok(Self {
            context: context.to_owned(),
            choices,
            gold,
        })
    }
}

/// The number of the choice that is meant: by its text, as lm-evaluation-harness reads texts, by its number, also as a
/// text, or by its letter.
fn right_choice(gold: &Value, choices: &[String]) -> Option<usize> {
    let Some(text) = gold.as_str() else {
        let number = gold.as_f64().filter(|number| number.fract() == 0.0 && *number >= 0.0)?;
        return Some(number as usize).filter(|number| *number < choices.len());
    };
    let by_text = choices.iter().position(|choice| choice == text);
    let by_number = || text.trim().parse().ok();
    let by_letter = || match text.trim().as_bytes() {
        [letter] if letter.is_ascii_alphabetic() => Some(usize::from(letter.to_ascii_uppercase() - b'A')),
        _ => None,
    };
    let found = by_text.or_else(by_number).or_else(by_letter);
    found.filter(|number| *number < choices.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: TaskKind, text: &str) -> String {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), text).expect("it is written");
        let error = TaskData::read(kind, file.path()).err().expect("it is refused");
        format!("{error:#}").replace(&file.path().display().to_string(), "FILE")
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        use TaskKind::{Lambada, MultipleChoice, Wikitext};
        let good = r#"{"query": "a", "choices": ["b", "c"], "gold": "c"}"#;
        for (kind, text, expected) in [
            (Wikitext, String::new(), "--data FILE is empty"),
            (Lambada, " \n\n".to_owned(), "--data FILE is empty"),
            (
                Lambada,
                "\n{\"text\": \"a b\"}\n[{\"text\": \"a b\"}]\n".to_owned(),
                "FILE:3: it begins a JSON array, and one object on each line is wanted",
            ),
            (
                Lambada,
                "{\"text\": \"a b\"}\n{\"txt\": \"a b\"}".to_owned(),
                "FILE:2: no key \"text\", there are \"txt\"; a line is {\"text\": \"…\"}",
            ),
            (
                Lambada,
                "{\"text\": \"word \"}".to_owned(),
                "FILE:1: a text of two words at least, with a space between them, is needed, got \"word\"",
            ),
            (
                MultipleChoice,
                format!("{good}\n{}", good.replace("\"c\"}", "2}")),
                "FILE:2: \"gold\" is the number of a choice, from 0 to 1, its text, its letter (A for the first), or a \
                 list of such, got 2",
            ),
            (
                MultipleChoice,
                good.replace(", \"c\"]", "]"),
                "FILE:1: two choices at least are needed, got 1",
            ),
            (
                MultipleChoice,
                good.replace("[\"b\"", "[\"\""),
                "FILE:1: choice 0 is empty",
            ),
            (
                MultipleChoice,
                good.replace("query", "question"),
                "FILE:1: no key \"query\" or \"context\", there are \"choices\", \"gold\", \"question\"; a line is \
                 {\"query\"",
            ),
        ] {
            let found = message(kind, &text);
            assert!(found.starts_with(expected), "{text:?}: {found}");
        }
    }

    #[test]
    fn a_byte_that_is_no_text_is_named_with_its_line() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), b"ab\ncd\xff\n").expect("it is written");
        let error = TaskData::read(TaskKind::Wikitext, file.path())
            .err()
            .expect("it is refused");
        assert!(error.to_string().ends_with(":2: a byte that is not UTF-8"), "{error:#}");
    }

    #[test]
    fn the_right_choice_is_a_text_a_number_a_letter_or_a_list() {
        let gold = |choices: &str, gold: &str| {
            let line = format!(r#"{{"context": "a", "choices": {choices}, "gold": {gold}, "score": NaN}}"#);
            let object = json_lines::object(&line).expect("an object");
            Question::read(&object)
                .map(|question| question.gold)
                .unwrap_or_default()
        };
        for (choices, given, expected) in [
            (r#"["b", "c"]"#, "1", vec![1]),
            (r#"["b", "c"]"#, "1.0", vec![1]),
            (r#"["b", "c"]"#, "\"c\"", vec![1]),
            (r#"["green", "blue"]"#, "\"B\"", vec![1]),
            (r#"["3", "4"]"#, "\"1\"", vec![1]),
            // As in lm-evaluation-harness, a text is looked for among the choices first.
            (r#"["1", "2"]"#, "\"1\"", vec![0]),
            (r#"["B", "A"]"#, "\"B\"", vec![0]),
            (r#"["b", "c"]"#, "[1]", vec![1]),
            (r#"["b", "c", "d"]"#, "[2, \"b\"]", vec![2, 0]),
            (r#"["b", "c"]"#, "2", vec![]),
            (r#"["b", "c"]"#, "-1", vec![]),
            (r#"["b", "c"]"#, "0.5", vec![]),
            (r#"["b", "c"]"#, "\"d\"", vec![]),
            (r#"["b", "c"]"#, "[]", vec![]),
            (r#"["b", "c"]"#, "null", vec![]),
            (r#"["b", "c"]"#, "true", vec![]),
        ] {
            assert_eq!(gold(choices, given), expected, "{given} of {choices}");
        }
    }

    #[test]
    fn the_last_word_is_what_follows_the_last_space() {
        let split = |text: &str| {
            let passage = Passage { text: text.to_owned() };
            passage
                .split()
                .map(|(context, word)| (context.to_owned(), word.to_owned()))
        };
        assert_eq!(split("a b  cd\n"), Some(("a b ".to_owned(), "cd".to_owned())));
        assert_eq!([split("word"), split("  word"), split("")], [None, None, None]);
    }
}
