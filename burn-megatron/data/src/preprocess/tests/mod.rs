//! Tests of whole runs.

mod failures;
mod sources;

use std::fs;
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use flate2::write::GzEncoder;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::indexed_dataset::{IndexedDataset, TokenDocuments, bin_path, idx_path};
use crate::tokenizer::{ByteTokenizer, Tokenizer};

/// A folder with inputs, and one for outputs.
struct Folders {
    input: TempDir,
    output: TempDir,
}

impl Folders {
    fn new() -> Self {
        Self {
            input: TempDir::new().unwrap(),
            output: TempDir::new().unwrap(),
        }
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.input.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path.into_os_string().into_string().unwrap()
    }

    fn config(&self, inputs: &[&str]) -> PreprocessConfig {
        let inputs = inputs.iter().map(|&input| input.to_owned()).collect();
        PreprocessConfig {
            workers: workers(2),
            ..PreprocessConfig::new(inputs, self.output.path().join("out"))
        }
    }

    fn dataset(&self, name: &str) -> PathBuf {
        self.output.path().join(format!("out_{name}"))
    }

    /// The documents of a data set as lists of sequences.
    fn documents(&self, name: &str) -> Vec<Vec<String>> {
        let dataset = IndexedDataset::open(self.dataset(name)).unwrap();
        let text = |sequence| {
            let mut tokens = vec![];
            dataset.read(sequence, 0..dataset.document_length(sequence), &mut tokens);
            let end = if tokens.last() == ByteTokenizer.end_of_document().as_ref() {
                "<end>"
            } else {
                ""
            };
            ByteTokenizer.decode(&tokens) + end
        };
        let documents = 0..dataset.num_boundaries() - 1;
        documents
            .map(|document| dataset.document_sequences(document).map(text).collect())
            .collect()
    }

    /// The names of all files that were written.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.output.path()).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn bytes(&self, name: &str) -> (Vec<u8>, Vec<u8>) {
        let prefix = self.dataset(name);
        (
            fs::read(bin_path(&prefix)).unwrap(),
            fs::read(idx_path(&prefix)).unwrap(),
        )
    }
}

fn workers(number: usize) -> NonZeroUsize {
    NonZeroUsize::new(number).unwrap()
}

fn run(config: &PreprocessConfig) -> Result<PreprocessSummary, PreprocessError> {
    preprocess(config, &ByteTokenizer, &Unobserved)
}

/// Checks how the error of a run ends.
fn check_error(config: &PreprocessConfig, end: &str) {
    let error = run(config).unwrap_err().to_string();
    assert!(error.ends_with(end), "{error}");
}

/// Documents of one sequence each.
fn whole(texts: &[&str]) -> Vec<Vec<String>> {
    texts
        .iter()
        .map(|text| {
            if text.is_empty() {
                vec![]
            } else {
                vec![(*text).to_owned()]
            }
        })
        .collect()
}

fn json_lines(texts: &[String]) -> String {
    texts
        .iter()
        .map(|text| serde_json::json!({ "id": 1, "text": text, "title": "t" }).to_string() + "\n")
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_documents_come_back(
        texts in prop::collection::vec("\\PC{0,20}|[ \\n\\t\"a]{0,9}", 0..40),
        count in 1..5_usize,
    ) {
        let folders = Folders::new();
        let input = folders.file("a.jsonl", json_lines(&texts));
        let config = PreprocessConfig { workers: workers(count), ..folders.config(&[&input]) };
        let summary = run(&config).unwrap();
        prop_assert_eq!(summary.progress.documents, texts.len() as u64);
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        prop_assert_eq!(folders.documents("text_document"), whole(&texts));
    }
}

#[test]
fn bytes_do_not_depend_on_the_number_of_workers() {
    let folders = Folders::new();
    // Several megabytes, so several batches, of documents of very different lengths.
    let texts: Vec<String> = (0..6_000)
        .map(|number| format!("{number} ").repeat((number * 7919) % 400))
        .collect();
    let input = folders.file("a.jsonl", json_lines(&texts));
    let bytes = |count| {
        let config = PreprocessConfig {
            workers: workers(count),
            append_end_of_document: true,
            ..folders.config(&[&input])
        };
        run(&config).unwrap();
        folders.bytes("text_document")
    };
    let one = bytes(1);
    assert!(one.0.len() > 4 << 20, "{} bytes", one.0.len());
    for count in [2, 3, 8] {
        assert!(bytes(count) == one, "{count} workers");
    }
}

#[test]
fn partitions_deal_documents_out() {
    let folders = Folders::new();
    let input = folders.file("a.txt", "a\nb\n\nc\nd\ne\nf\ng");
    let config = PreprocessConfig {
        split_on: SplitOn::Line,
        partitions: workers(3),
        append_end_of_document: true,
        ..folders.config(&[&input])
    };
    run(&config).unwrap();
    let expected = ["a<end>", "d<end>", "g<end>", "b<end>", "e<end>", "c<end>", "f<end>"];
    assert_eq!(folders.documents("text_document"), whole(&expected));
    assert_eq!(folders.names(), ["out_text_document.bin", "out_text_document.idx"]);
}

#[test]
fn partitions_of_batches_are_one_runs_documents() {
    let folders = Folders::new();
    let texts: Vec<String> = (0..10_000).map(|number| format!("document {number}")).collect();
    let input = folders.file("a.jsonl", json_lines(&texts));
    run(&PreprocessConfig {
        partitions: workers(4),
        ..folders.config(&[&input])
    })
    .unwrap();
    let dealt: Vec<&str> = (0..4)
        .flat_map(|part| texts.iter().skip(part).step_by(4))
        .map(String::as_str)
        .collect();
    assert!(folders.documents("text_document") == whole(&dealt));
}

#[test]
fn each_key_is_a_data_set() {
    let folders = Folders::new();
    let lines = "{\"text\": \"a\", \"title\": \"b\"}\n{\"title\": [\"x\", \"\", \"y\"], \"text\": \"\"}\n";
    let input = folders.file("a.jsonl", lines);
    let config = PreprocessConfig {
        keys: vec!["text".to_owned(), "title".to_owned()],
        append_end_of_document: true,
        ..folders.config(&[&input])
    };
    let summary = run(&config).unwrap();
    assert_eq!(summary.datasets.len(), 2);
    assert_eq!(folders.documents("text_document"), [vec!["a<end>"], vec![]]);
    assert_eq!(
        folders.documents("title_document"),
        [vec!["b<end>"], vec!["x", "y<end>"]]
    );
}

#[test]
fn sentences_are_sequences() {
    let folders = Folders::new();
    let input = folders.file("a.txt", "One. Two\nlines!\n\nThree.\n\n \n");
    let config = PreprocessConfig {
        sentences: Some(SentenceEnds::Trimmed),
        append_end_of_document: true,
        ..folders.config(&[&input])
    };
    run(&config).unwrap();
    assert_eq!(
        folders.documents("text_sentence"),
        [["One.", "Two\nlines!", "Three.<end>"]]
    );
}
