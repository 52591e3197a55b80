//! [`TaskData`]: what the file of a task holds.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;
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
#[derive(Debug, Deserialize)]
pub(super) struct Passage {
    pub(super) text: String,
}

/// A text and several that may follow it.
#[derive(Debug, Deserialize)]
pub(super) struct Question {
    #[serde(alias = "query")]
    pub(super) context: String,
    pub(super) choices: Vec<String>,
    gold: Gold,
}

/// Which choice is right.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Gold {
    Number(usize),
    Text(String),
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
            TaskKind::Lambada => Content::Passages(lines(&text, path, |passage: &Passage| passage.check())?),
            TaskKind::MultipleChoice => Content::Questions(lines(&text, path, |question: &Question| question.check())?),
        };
        Ok(Self { content, sha256 })
    }
}

/// The items of a file of JSON lines.
fn lines<T: DeserializeOwned>(
    text: &str,
    path: &Path,
    check: impl Fn(&T) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<Line<T>>> {
    let item = |(index, line): (usize, &str)| {
        let number = index + 1;
        let parsed = serde_json::from_str(line).map_err(anyhow::Error::from);
        let item = parsed.and_then(|item| check(&item).map(|()| item));
        let item = item.with_context(|| format!("{}:{number}", path.display()))?;
        Ok(Line { number, item })
    };
    text.lines().enumerate().map(item).collect()
}

impl Passage {
    /// The text before the last word, without the space between them, and that word.
    pub(super) fn split(&self) -> Option<(&str, &str)> {
        let (context, word) = self.text.trim_end().rsplit_once(' ')?;
        (!context.trim().is_empty()).then_some((context, word))
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.split().is_some(),
            "a text of two words at least is needed, got {:?}",
            self.text
        );
        Ok(())
    }
}

impl Question {
    /// The number of the right choice, from 0.
    pub(super) fn gold(&self) -> Option<usize> {
        match &self.gold {
            Gold::Number(number) => (*number < self.choices.len()).then_some(*number),
            Gold::Text(text) => self.choices.iter().position(|choice| choice == text),
        }
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.choices.len() > 1,
            "two choices at least are needed, got {}",
            self.choices.len()
        );
        if let Some(number) = self.choices.iter().position(String::is_empty) {
            bail!("choice {number} is empty");
        }
        ensure!(
            self.gold().is_some(),
            "\"gold\" is the number of a choice, from 0 to {}, or its text, got {:?}",
            self.choices.len() - 1,
            self.gold
        );
        Ok(())
    }
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
                "{\"text\": \"a b\"}\n\n{\"text\": \"a b\"}\n".to_owned(),
                "FILE:2: EOF while parsing",
            ),
            (
                Lambada,
                "{\"text\": \"a b\"}\n{\"txt\": \"a b\"}".to_owned(),
                "FILE:2: missing field `text`",
            ),
            (
                Lambada,
                "{\"text\": \"word \"}".to_owned(),
                "FILE:1: a text of two words at least is needed, got \"word \"",
            ),
            (
                MultipleChoice,
                format!("{good}\n{}", good.replace("\"c\"}", "2}")),
                "FILE:2: \"gold\" is the number of",
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
                "FILE:1: missing field `context`",
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
    fn the_right_choice_is_a_number_or_a_text() {
        let gold = |gold: &str| {
            let line = format!(r#"{{"context": "a", "choices": ["b", "c"], "gold": {gold}}}"#);
            serde_json::from_str::<Question>(&line).expect("a question").gold()
        };
        assert_eq!(
            [gold("1"), gold("\"b\""), gold("2"), gold("\"d\"")],
            [Some(1), Some(0), None, None]
        );
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
