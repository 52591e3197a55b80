//! The samples of BERT and T5 are Megatron-LM's, to the bit: their order, their segments and spans, and their masks.
//! `fixtures/masked_samples.json`, which `fixtures/masked_samples.py` made.

#![allow(clippy::unwrap_used)] // Its helpers are tests too.

use std::sync::Arc;

use burn_megatron_data::bert_dataset::{BertDataset, BertDatasetConfig};
use burn_megatron_data::in_memory::InMemorySentences;
use burn_megatron_data::masked_dataset::{MaskedDatasetConfig, MaskingConfig, NgramLengths};
use burn_megatron_data::samples::SampleSet;
use burn_megatron_data::t5_dataset::{T5Dataset, T5DatasetConfig};
use burn_megatron_data::tokenizer::{Token, TokenRoles, Tokenizer};
use serde_json::Value;
use sha2::{Digest, Sha256};

const VOCABULARY: u32 = 1000;
const SENTINELS: u32 = 100;

/// The vocabulary of the Python script.
struct Numbers;

impl Tokenizer for Numbers {
    fn vocabulary_size(&self) -> usize {
        (VOCABULARY + SENTINELS) as usize
    }

    fn end_of_document(&self) -> Option<Token> {
        Some(6)
    }

    fn token_roles(&self) -> TokenRoles {
        TokenRoles {
            pad: Some(0),
            cls: Some(1),
            sep: Some(2),
            mask: Some(3),
            bos: Some(4),
            eos: Some(5),
            sentinels: (VOCABULARY..VOCABULARY + SENTINELS).collect(),
        }
    }

    fn continues_word(&self, _: Option<Token>, token: Token) -> bool {
        token >= 10 && token % 3 == 1
    }

    fn encode(&self, _: &str, _: &mut Vec<Token>) {}

    fn decode(&self, _: &[Token]) -> String {
        String::new()
    }
}

/// The documents of the Python script: `[name, documents, sentences, length]`.
fn documents(data: &Value) -> Arc<InMemorySentences> {
    let [name, documents, sentences, length] = [0, 1, 2, 3].map(|place| data[place].as_u64().unwrap());
    let mut store = InMemorySentences::new(VOCABULARY as usize);
    let (mut sentence, mut first) = (0, 0);
    for d in 0..documents {
        let mut document = vec![];
        for _ in 0..(5 * d * d + 3 * d + name) % sentences {
            let tokens = 1 + (7 * sentence * sentence + 13 * sentence) % length;
            let token = |i: u64| 10 + (((i * 2_654_435_761) % (1 << 32)) >> 7) as u32 % (VOCABULARY - 10);
            document.push((first..first + tokens).map(token).collect::<Vec<u32>>());
            sentence += 1;
            first += tokens;
        }
        store.push(&document);
    }
    Arc::new(store)
}

fn config(case: &Value) -> MaskedDatasetConfig {
    MaskedDatasetConfig {
        seq_length: case["seq_length"].as_u64().unwrap() as usize,
        num_samples: case["num_samples"].as_u64(),
        seed: case["seed"].as_u64().unwrap() as u32,
        short_sequence_probability: case["short"].as_f64().unwrap(),
        masking: MaskingConfig {
            probability: case["probability"].as_f64().unwrap(),
            max_ngram: case["max_ngram"].as_u64().unwrap() as usize,
            lengths: match case["lengths"].as_str().unwrap() {
                "short" => NgramLengths::ShortOften,
                "long" => NgramLengths::LongOften,
                _ => NgramLengths::Geometric,
            },
            whole_words: case["whole_words"].as_bool().unwrap(),
        },
    }
}

/// The samples of a case as the numbers that the script writes.
fn samples(case: &Value) -> Vec<Vec<u32>> {
    let documents = documents(&case["documents"]);
    let bound = |place: usize| case["range"][place].as_u64().unwrap() as usize;
    let range = bound(0)..bound(1);
    let samples = config(case);
    let integers = |mask: &[f32]| mask.iter().map(|&weight| weight as u32).collect::<Vec<u32>>();
    if case["kind"] == "bert" {
        let two_segments = case["two_segments"].as_bool().unwrap();
        let config = BertDatasetConfig { samples, two_segments };
        let dataset = BertDataset::new(&config, documents, range, Arc::new(Numbers), None).unwrap();
        let numbers = |index| {
            let sample = dataset.read(index).unwrap();
            let loss_mask = integers(&sample.loss_mask);
            let is_random = vec![u32::from(sample.is_next_random)];
            [sample.tokens, sample.token_types, sample.targets, loss_mask, is_random].concat()
        };
        return (0..dataset.num_samples()).map(numbers).collect();
    }
    let decoder_seq_length = case["decoder_seq_length"].as_u64().unwrap() as usize;
    let config = T5DatasetConfig {
        samples,
        decoder_seq_length,
    };
    let dataset = T5Dataset::new(&config, documents, range, Arc::new(Numbers), None).unwrap();
    let numbers = |index| {
        let sample = dataset.read(index).unwrap();
        let loss_mask = integers(&sample.loss_mask);
        [sample.encoder_tokens, sample.decoder_tokens, sample.targets, loss_mask].concat()
    };
    (0..dataset.num_samples()).map(numbers).collect()
}

fn check(kind: &str, fewest: usize) {
    let fixture: Vec<Value> = serde_json::from_str(include_str!("fixtures/masked_samples.json")).unwrap();
    let cases: Vec<&Value> = fixture.iter().filter(|case| case["kind"] == kind).collect();
    assert!(cases.len() >= fewest);
    for case in cases {
        let expected = &case["samples"];
        let samples = samples(case);
        let first: Vec<u32> = serde_json::from_value(expected["first"].clone()).unwrap();
        assert_eq!(samples[0], first, "{case}");
        assert_eq!(
            samples.len() as u64,
            expected["num_samples"].as_u64().unwrap(),
            "{case}"
        );
        let mut hasher = Sha256::new();
        let numbers = samples.iter().flatten();
        numbers.for_each(|number| hasher.update(number.to_le_bytes()));
        let hash: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hash, expected["sha256"].as_str().unwrap(), "{case}");
    }
}

#[test]
fn samples_of_bert_are_megatrons() {
    check("bert", 8);
}

#[test]
fn samples_of_t5_are_megatrons() {
    check("t5", 3);
}
