//! The order of samples is Megatron-LM's, to the sample: `fixtures/sample_order.json`, which
//! `fixtures/sample_order.py` made.

#![allow(clippy::unwrap_used)] // Its helpers are tests too.

use std::sync::Arc;

use burn_megatron_data::build::{BuildConfig, DataSource, RunData};
use burn_megatron_data::data_path::DataPath;
use burn_megatron_data::gpt_dataset::{GptDataset, GptDatasetConfig};
use burn_megatron_data::in_memory::InMemoryDocuments;
use burn_megatron_data::indexed_dataset::TokenDocuments;
use burn_megatron_data::marks::{DocumentMarks, DocumentRules};
use burn_megatron_data::samples::{SampleError, Samples};
use burn_megatron_data::split::SplitRatios;
use serde_json::Value;
use sha2::{Digest, Sha256};

fn fixture() -> Value {
    serde_json::from_str(include_str!("fixtures/sample_order.json")).unwrap()
}

/// The documents of the Python script: `[name, documents, modulus]`.
fn documents(data: &Value) -> Arc<dyn TokenDocuments> {
    let [name, documents, modulus] = [0, 1, 2].map(|place| data[place].as_u64().unwrap());
    let mut store = InMemoryDocuments::new(usize::MAX);
    let mut first = name * 10_000_000;
    for i in 0..documents {
        let length = (7 * i * i + 13 * i + name) % modulus;
        let tokens: Vec<u32> = (first..first + length).map(|token| token as u32).collect();
        store.push(&tokens);
        first += length;
    }
    Arc::new(store)
}

fn config(case: &Value) -> GptDatasetConfig {
    GptDatasetConfig {
        num_samples: case["num_samples"].as_u64(),
        seed: case["seed"].as_u64().unwrap() as u32,
        extra_token: case["extra_token"].as_bool().unwrap_or(true),
        drop_last_partial: case["drop_last_partial"].as_bool().unwrap_or(true),
        ..GptDatasetConfig::one_epoch(case["seq_length"].as_u64().unwrap() as usize)
    }
}

fn sha256(values: &[u32]) -> String {
    let mut hasher = Sha256::new();
    values.iter().for_each(|value| hasher.update(value.to_le_bytes()));
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn check_order(dataset: &dyn Samples, expected: &Value, case: &Value) {
    assert_eq!(
        dataset.num_samples(),
        expected["num_samples"].as_u64().unwrap(),
        "{case}"
    );
    let mut tokens = vec![];
    for index in 0..dataset.num_samples() {
        dataset.read_sample(index, &mut tokens).unwrap();
    }
    for (sample, first) in tokens
        .chunks(dataset.sample_length())
        .zip(expected["first"].as_array().unwrap())
    {
        let first: Vec<u32> = serde_json::from_value(first.clone()).unwrap();
        assert_eq!(sample[..first.len()], first, "{case}");
    }
    assert_eq!(sha256(&tokens), expected["sha256"].as_str().unwrap(), "{case}");
}

#[test]
fn samples_of_one_data_set_are_megatrons() {
    let fixture = fixture();
    let cases = fixture["gpt"].as_array().unwrap();
    assert!(cases.len() >= 20);
    for case in cases {
        let documents = documents(&case["data"]);
        let bound = |place: usize| case["range"][place].as_u64().map(|bound| bound as usize);
        let range = bound(0).unwrap_or(0)..bound(1).unwrap_or(documents.num_documents());
        let dataset = GptDataset::new(&config(case), documents, range).unwrap();
        check_order(&dataset, &case["order"], case);
    }
}

/// Prefixes are the documents' numbers as text.
fn data_path(blend: &Value) -> Option<DataPath> {
    Some(DataPath {
        prefixes: blend["data"].as_array()?.iter().map(Value::to_string).collect(),
        weights: serde_json::from_value(blend["weights"].clone()).unwrap(),
    })
}

fn build(case: &Value, folder: &std::path::Path) -> RunData {
    let source = match case["split"].as_str() {
        Some(split) => DataSource::Divided {
            path: data_path(&case["blend"]).unwrap(),
            split: SplitRatios::parse(split).unwrap(),
        },
        None => DataSource::Separate([0, 1, 2].map(|part| data_path(&case["blend_per_split"][part]))),
    };
    let config = BuildConfig {
        source,
        num_samples: [0, 1, 2].map(|part| case["sizes"][part].as_u64()),
        dataset: config(case),
        drop_last_partial_validation: true,
        validation_by_prefix: false,
        cache_path: Some(folder.to_path_buf()),
    };
    let open = |prefix: &str| Ok::<_, SampleError>(documents(&serde_json::from_str(prefix).unwrap()));
    RunData::build(&config, open).unwrap()
}

#[test]
fn samples_of_blends_are_megatrons() {
    let fixture = fixture();
    let folder = tempfile::tempdir().unwrap();
    let cases = fixture["blends"].as_array().unwrap();
    assert!(cases.len() >= 8);
    for case in cases {
        let data = build(case, folder.path());
        for (part, split) in data.splits.iter().enumerate() {
            let expected = &case["orders"][part];
            match split {
                Some(dataset) => check_order(&**dataset, expected, case),
                // Megatron-LM makes a data set of no samples too.
                None => assert!(expected.is_null() || case["sizes"][part] == 0, "{case}"),
            }
        }
    }
}

#[test]
fn marks_are_megatrons() {
    let expected = &fixture()["marks"];
    let tokens: Vec<u32> = serde_json::from_value(expected["tokens"].clone()).unwrap();
    let mut marks = DocumentMarks::default();
    let rules = DocumentRules {
        reset_position_ids: true,
        reset_attention_mask: true,
        eod_mask_loss: true,
    };
    marks.push(&tokens, expected["end_of_document"].as_u64().unwrap() as u32, rules);
    assert_eq!(serde_json::json!(marks.position_ids), expected["position_ids"]);
    assert_eq!(serde_json::json!(marks.document_starts), expected["document_starts"]);
    assert_eq!(serde_json::json!(marks.loss_mask), expected["loss_mask"]);
}
