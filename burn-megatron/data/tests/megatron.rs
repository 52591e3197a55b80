//! Data sets that Megatron-LM's own code wrote (`fixtures/megatron/megatron.py`): read, and written again byte for
//! byte.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use burn_megatron_data::indexed_dataset::{
    ElementType, IndexedDataset, IndexedDatasetWriter, TokenDocuments, bin_path, idx_path, merge,
};
use burn_megatron_data::preprocess::{PreprocessConfig, Unobserved, preprocess};
use burn_megatron_data::tokenizer::{ByteTokenizer, Token, Tokenizer};
use tempfile::TempDir;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/megatron")
        .join(name)
}

fn assert_same_files(ours: &Path, megatron: &Path) {
    for path in [bin_path, idx_path] {
        let (ours, megatron) = (path(ours), path(megatron));
        assert!(
            fs::read(&ours).unwrap() == fs::read(&megatron).unwrap(),
            "{} differs from Megatron-LM's",
            ours.display()
        );
    }
}

#[test]
fn every_type_is_read_and_written_as_megatron_does() {
    let expected: [&[&[Token]]; 4] = [&[], &[&[1, 2, 3], &[127]], &[&[0, 64]], &[]];
    let types = [
        "uint8", "int8", "int16", "int32", "int64", "float64", "float32", "uint16",
    ];
    let folder = TempDir::new().unwrap();
    for (name, element_type) in types.into_iter().zip(ElementType::ALL.iter().copied()) {
        let prefix = fixture(&format!("type_{name}"));
        let dataset = IndexedDataset::open(&prefix).unwrap();
        assert_eq!(dataset.element_type(), element_type);
        assert_eq!(dataset.num_boundaries(), 5);
        let ours = folder.path().join(name);
        let mut writer = IndexedDatasetWriter::create(&ours, element_type).unwrap();
        for (document, expected) in expected.iter().enumerate() {
            let sequences = dataset.document_sequences(document);
            assert_eq!(sequences.len(), expected.len());
            for (sequence, expected) in sequences.zip(*expected) {
                let mut tokens = vec![];
                dataset.read(sequence, 0..dataset.document_length(sequence), &mut tokens);
                assert_eq!(&tokens, expected);
                writer.push_sequence(&tokens).unwrap();
            }
            writer.end_document().unwrap();
        }
        writer.finish().unwrap();
        assert_same_files(&ours, &prefix);
    }
}

/// Bytes as tokens, of a vocabulary that is said to be larger.
struct Wide(usize);

impl Tokenizer for Wide {
    fn vocabulary_size(&self) -> usize {
        self.0
    }

    fn end_of_document(&self) -> Option<Token> {
        ByteTokenizer.end_of_document()
    }

    fn encode(&self, text: &str, tokens: &mut Vec<Token>) {
        ByteTokenizer.encode(text, tokens);
    }

    fn decode(&self, tokens: &[Token]) -> String {
        ByteTokenizer.decode(tokens)
    }
}

/// Preprocesses the corpus and compares with what `tools/preprocess_data.py` made of it.
fn assert_as_preprocess_data(name: &str, vocabulary_size: usize, change: impl FnOnce(&mut PreprocessConfig)) {
    let folder = TempDir::new().unwrap();
    let corpus = fixture("corpus.jsonl").into_os_string().into_string().unwrap();
    let mut config = PreprocessConfig::new(vec![corpus], folder.path().join(name));
    change(&mut config);
    let summary = preprocess(&config, &Wide(vocabulary_size), &Unobserved).unwrap();
    assert_eq!(summary.progress.documents, 24);
    for (prefix, _) in &summary.datasets {
        assert_same_files(prefix, &fixture(prefix.file_name().unwrap().to_str().unwrap()));
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2 * config.keys.len());
}

#[test]
fn preprocess_writes_what_megatron_writes() {
    assert_as_preprocess_data("plain", 257, |_| {});
    assert_as_preprocess_data("eod", 257, |config| {
        config.append_end_of_document = true;
        config.keys.push("title".to_owned());
    });
    assert_as_preprocess_data("narrow", 65_499, |config| config.append_end_of_document = true);
    assert_as_preprocess_data("wide", 65_500, |config| config.append_end_of_document = true);
    assert_as_preprocess_data("dealt", 257, |config| {
        config.append_end_of_document = true;
        config.partitions = NonZeroUsize::new(3).unwrap();
    });
}

#[test]
fn merge_writes_what_megatron_writes() {
    let folder = TempDir::new().unwrap();
    let ours = folder.path().join("merged");
    let parts = ["plain_text_document", "eod_text_document", "dealt_text_document"].map(fixture);
    merge(&parts, &ours).unwrap();
    assert_same_files(&ours, &fixture("merged"));
}
