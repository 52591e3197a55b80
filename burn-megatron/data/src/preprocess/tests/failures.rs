//! Runs that end with an error.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::tokenizer::Token;

const BAD: &[u8] =
    b"{\"text\": \"one\"}\n\n{\"title\": \"x\"}\nnot json\n{\"text\": \"\xFF\"}\n{\"text\": 5}\n{\"text\": \"two\"}";

#[test]
fn a_bad_line_is_named_and_leaves_no_file() {
    let folders = Folders::new();
    let input = folders.file("a.jsonl", BAD);
    let end = "a.jsonl, line 3: no key \"text\", there are \"title\"";
    check_error(&folders.config(&[&input]), end);
    assert!(folders.names().is_empty());
}

#[test]
fn bad_lines_are_left_out_and_counted() {
    let folders = Folders::new();
    let input = folders.file("a.jsonl", BAD);
    let config = PreprocessConfig {
        skip_bad: true,
        max_document_bytes: 40,
        ..folders.config(&[&input])
    };
    let summary = run(&config).unwrap();
    assert_eq!(folders.documents("text_document"), whole(&["one", "two"]));
    assert_eq!((summary.progress.documents, summary.progress.bad_documents), (2, 4));
    let bad: Vec<(u64, &str)> = summary
        .first_bad
        .iter()
        .map(|bad| (bad.number, bad.reason.as_str()))
        .collect();
    assert_eq!(bad[1], (4, "column 2: expected ident"));
    assert_eq!(bad[2], (5, "not UTF-8 at byte 11 of the line"));
    assert_eq!(bad[3].0, 6);
}

#[test]
fn the_line_of_a_bad_byte_in_text_is_named() {
    let folders = Folders::new();
    let input = folders.file("a.txt", b"one\n\ntwo\nab\xC3(\n");
    for split_on in [SplitOn::File, SplitOn::BlankLine, SplitOn::Line] {
        let config = PreprocessConfig {
            split_on,
            ..folders.config(&[&input])
        };
        check_error(&config, "a.txt, line 4: not UTF-8 at byte 3 of the line");
    }
}

#[test]
fn documents_over_the_limit_are_bad_and_never_held() {
    let folders = Folders::new();
    let long = "x".repeat(2 << 20);
    let numbers = |split_on, text: &str| {
        let input = folders.file("a.txt", text);
        let config = PreprocessConfig {
            split_on,
            skip_bad: true,
            max_document_bytes: 10,
            ..folders.config(&[&input])
        };
        let summary = run(&config).unwrap();
        let bad: Vec<u64> = summary.first_bad.iter().map(|bad| bad.number).collect();
        (folders.documents("text_document").concat().concat(), bad)
    };
    assert_eq!(numbers(SplitOn::File, "0123456789"), ("0123456789".to_owned(), vec![]));
    assert_eq!(
        numbers(SplitOn::Line, &format!("a\n{long}\nb\n{long}")),
        ("ab".to_owned(), vec![2, 4])
    );
    let paragraphs = format!("a\n\n\n0\n{long}\n1\n\nb\n\n01234\n56789\n\n0123\n45678");
    assert_eq!(
        numbers(SplitOn::BlankLine, &paragraphs),
        ("ab0123\n45678".to_owned(), vec![4, 10])
    );
}

#[test]
fn leaving_out_every_document_is_an_error() {
    let folders = Folders::new();
    for (name, text, end) in [
        (
            "a.txt",
            "0123456789a",
            "none of 1 documents can be taken, the first: a.txt, line 1: the file is longer",
        ),
        (
            "pretty.json",
            "[\n  {\n    \"text\": \"one\"\n  }\n]\n",
            "none of 5 documents can be taken, the first: pretty.json, line 1: it begins a JSON array",
        ),
    ] {
        let input = folders.file(name, text);
        let config = PreprocessConfig {
            skip_bad: true,
            max_document_bytes: 10,
            ..folders.config(&[&input])
        };
        let message = run(&config).unwrap_err().to_string();
        assert!(message.replace(&input, name).starts_with(end), "{message}");
        assert!(folders.names().is_empty());
    }
    // An input without documents is none with bad ones.
    let empty = folders.file("empty.jsonl", "\n");
    assert_eq!(run(&folders.config(&[&empty])).unwrap().progress.documents, 0);
}

#[test]
fn a_contradictory_configuration_is_refused() {
    let folders = Folders::new();
    let input = folders.file("a.jsonl", "");
    let error = |change: fn(&mut PreprocessConfig)| {
        let mut config = folders.config(&[&input]);
        change(&mut config);
        run(&config).unwrap_err().to_string()
    };
    assert!(error(|config| config.keys.clear()).starts_with("no key"));
    assert!(error(|config| config.keys.push("text".to_owned())).contains("\"text\" is given twice"));
    assert!(error(|config| config.keys = vec!["a/b".to_owned()]).contains("slash"));
    assert!(error(|config| config.output_prefix = "no/such/folder/out".into()).starts_with("cannot create no/such"));
}

/// Stops after some batches.
struct StopAfter(Cell<usize>);

impl Observer for StopAfter {
    fn progressed(&self, _progress: &Progress) {
        self.0.set(self.0.get().saturating_sub(1));
    }

    fn is_stopped(&self) -> bool {
        self.0.get() == 0
    }
}

/// Far more batches than are ever in flight.
fn large(folders: &Folders) -> String {
    folders.file("large.jsonl", json_lines(&vec!["some words ".repeat(1000); 4000]))
}

#[test]
fn a_stopped_run_leaves_no_file() {
    let folders = Folders::new();
    let input = large(&folders);
    for batches in [0, 1, 5] {
        let config = PreprocessConfig {
            partitions: workers(2),
            ..folders.config(&[&input])
        };
        let error = preprocess(&config, &ByteTokenizer, &StopAfter(Cell::new(batches))).unwrap_err();
        assert!(matches!(error, PreprocessError::Stopped), "{error}");
        assert!(folders.names().is_empty());
    }
}

#[test]
fn an_early_error_ends_a_long_run() {
    let folders = Folders::new();
    let bad = folders.file("bad.jsonl", "{}");
    let input = large(&folders);
    let error = run(&folders.config(&[&bad, &input])).unwrap_err();
    assert!(matches!(error, PreprocessError::Bad(_)), "{error}");
}

/// Panics, or makes tokens that its vocabulary has not.
struct Broken {
    panics: bool,
}

impl Tokenizer for Broken {
    fn vocabulary_size(&self) -> usize {
        257
    }

    fn end_of_document(&self) -> Option<Token> {
        None
    }

    fn encode(&self, _text: &str, tokens: &mut Vec<Token>) {
        assert!(!self.panics, "broken");
        tokens.push(70_000);
    }

    fn decode(&self, _tokens: &[Token]) -> String {
        String::new()
    }
}

#[test]
fn a_broken_tokenizer_ends_the_run() {
    let folders = Folders::new();
    let input = large(&folders);
    for count in [1, 3] {
        let mut config = PreprocessConfig {
            workers: workers(count),
            ..folders.config(&[&input])
        };
        let error = preprocess(&config, &Broken { panics: false }, &Unobserved)
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("the tokenizer gave token 70000"), "{error}");
        let run = || preprocess(&config, &Broken { panics: true }, &Unobserved);
        assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
        assert!(folders.names().is_empty());
        config.append_end_of_document = true;
        let error = preprocess(&config, &Broken { panics: false }, &Unobserved)
            .unwrap_err()
            .to_string();
        assert!(error.contains("no end-of-document token"), "{error}");
    }
}
