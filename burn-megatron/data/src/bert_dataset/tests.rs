//! Tests of `bert_dataset`: segments of known text, and properties; Megatron-LM's own samples are in
//! `tests/masked_samples.rs`.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::in_memory::InMemorySentences;
use crate::masked_dataset::NgramLengths;
use crate::tokenizer::{ByteTokenizer, MaskedByteTokenizer};

const TEXT: &str = "It was the best of times. It was the worst of times! Was it the age of wisdom? It was the age of \
    foolishness. It was the epoch of belief. It was the epoch of incredulity.";

fn dataset(config: &BertDatasetConfig, texts: &[&str]) -> BertDataset {
    let tokenizer = Arc::new(MaskedByteTokenizer);
    let documents = InMemorySentences::tokenize(texts.iter().copied(), &*tokenizer);
    BertDataset::new(config, Arc::new(documents), 0..texts.len(), tokenizer, None).unwrap()
}

/// The sample's tokens before they were masked.
fn unmasked(sample: &BertSample) -> Vec<Token> {
    let tokens = sample.tokens.iter().zip(&sample.targets).zip(&sample.loss_mask);
    let tokens = tokens.map(|((&token, &target), &mask)| if mask > 0.0 { target } else { token });
    tokens.take(sample.length).collect()
}

#[test]
fn a_sample_is_two_segments_of_the_text_in_either_order() {
    let dataset = dataset(&BertDatasetConfig::new(512, Some(64)), &[TEXT]);
    let mut swapped = 0;
    for index in 0..dataset.num_samples() {
        let sample = dataset.read(index).unwrap();
        let tokens = unmasked(&sample);
        assert_eq!(
            (tokens[0], *tokens.last().unwrap()),
            (MaskedByteTokenizer::CLS, MaskedByteTokenizer::SEP)
        );
        let middle = tokens
            .iter()
            .position(|&token| token == MaskedByteTokenizer::SEP)
            .unwrap();
        let text = |range: Range<usize>| MaskedByteTokenizer.decode(&tokens[range]);
        let [a, b] = [text(1..middle), text(middle + 1..tokens.len() - 1)];
        if sample.tokens[sample.length..].first() == Some(&MaskedByteTokenizer::PAD) && tokens.len() > 150 {
            let joined = if sample.is_next_random {
                format!("{b}{a}")
            } else {
                format!("{a}{b}")
            };
            assert_eq!(
                joined,
                TEXT.split(". ")
                    .collect::<Vec<_>>()
                    .join(".")
                    .replace("! ", "!")
                    .replace("? ", "?")
            );
        }
        swapped += u32::from(sample.is_next_random);
        let types: Vec<u32> = (0..512)
            .map(|place| u32::from((middle + 1..sample.length).contains(&place)))
            .collect();
        assert_eq!(sample.token_types, types);
        assert!(
            sample.tokens[sample.length..]
                .iter()
                .all(|&token| token == MaskedByteTokenizer::PAD)
        );
        assert!(sample.loss_mask[sample.length..].iter().all(|&mask| mask == 0.0));
    }
    assert!((20..=44).contains(&swapped), "{swapped} of 64 swapped");
}

#[test]
fn one_segment_needs_one_sentence() {
    let config = BertDatasetConfig {
        two_segments: false,
        ..BertDatasetConfig::new(32, None)
    };
    let dataset = dataset(
        &config,
        &["One sentence that is longer than a sample of 32 tokens", "Ab"],
    );
    assert_eq!(dataset.num_samples(), 2);
    for index in 0..2 {
        let sample = dataset.read(index).unwrap();
        assert!(!sample.is_next_random);
        assert_eq!(sample.token_types, [0; 32]);
    }
}

#[test]
fn what_is_wrong_is_said() {
    let documents = Arc::new(InMemorySentences::tokenize([TEXT], &ByteTokenizer));
    let error = |config: &BertDatasetConfig, tokenizer: Arc<dyn Tokenizer>| {
        BertDataset::new(config, documents.clone(), 0..1, tokenizer, None)
            .unwrap_err()
            .to_string()
    };
    let message = error(&BertDatasetConfig::new(64, None), Arc::new(ByteTokenizer));
    assert!(
        message.contains("samples of BERT need a token that begins a sample ([CLS])"),
        "{message}"
    );
    let message = error(&BertDatasetConfig::new(4, None), Arc::new(MaskedByteTokenizer));
    assert!(message.contains("(--seq-length) must be at least 5"), "{message}");
    let message = error(&BertDatasetConfig::new(64, Some(0)), Arc::new(MaskedByteTokenizer));
    assert!(message.contains("number of samples must be at least 1"), "{message}");
    let dataset = dataset(&BertDatasetConfig::new(64, None), &[TEXT]);
    let message = dataset.read(dataset.num_samples()).unwrap_err().to_string();
    assert!(message.contains("requested from a data set of"), "{message}");
    // A token that the vocabulary does not have is of another one.
    let mut other = InMemorySentences::new(1000);
    other.push([[999], [7]]);
    let config = BertDatasetConfig::new(64, None);
    let wrong = BertDataset::new(&config, Arc::new(other), 0..1, Arc::new(MaskedByteTokenizer), None).unwrap();
    let message = wrong.read(0).unwrap_err().to_string();
    assert!(message.contains("token 999 of a vocabulary of 361"), "{message}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn samples_do_not_depend_on_the_order_of_reading(
        seq_length in 5usize..80,
        seed in any::<u32>(),
        max_ngram in 1usize..5,
        geometric in any::<bool>(),
        two_segments in any::<bool>(),
    ) {
        let mut config = BertDatasetConfig::new(seq_length, Some(20));
        config.two_segments = two_segments;
        config.samples.seed = seed;
        config.samples.masking.max_ngram = max_ngram;
        if geometric {
            config.samples.masking.lengths = NgramLengths::Geometric;
        }
        let texts = [TEXT, "A. B. C."];
        let first = dataset(&config, &texts);
        let read = |dataset: &BertDataset, index| dataset.read(index).unwrap();
        let forward: Vec<_> = (0..first.num_samples()).map(|index| read(&first, index)).collect();
        let second = dataset(&config, &texts);
        for (index, sample) in forward.iter().enumerate().rev() {
            prop_assert_eq!(&read(&second, index as u64), sample);
            prop_assert_eq!(sample.tokens.len(), seq_length);
            prop_assert!(sample.length <= seq_length);
            prop_assert!(sample.tokens.iter().all(|&token| token < 361));
        }
    }
}
