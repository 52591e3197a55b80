//! Tests of `t5_dataset`: encoder and decoder have the text between them; Megatron-LM's own samples are in
//! `tests/masked_samples.rs`.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::in_memory::InMemorySentences;
use crate::tokenizer::{ByteTokenizer, MaskedByteTokenizer};

const TEXT: &str = "It was the best of times. It was the worst of times! Was it the age of wisdom? It was the age of \
    foolishness. It was the epoch of belief. It was the epoch of incredulity.";

fn dataset(config: &T5DatasetConfig, texts: &[&str]) -> T5Dataset {
    let tokenizer = Arc::new(MaskedByteTokenizer);
    let documents = InMemorySentences::tokenize(texts.iter().copied(), &*tokenizer);
    T5Dataset::new(config, Arc::new(documents), 0..texts.len(), tokenizer, None).unwrap()
}

fn is_sentinel(token: &Token) -> bool {
    (MaskedByteTokenizer::FIRST_SENTINEL..361).contains(token)
}

/// Puts the spans of the decoder's targets back into the encoder's tokens.
fn put_back(sample: &T5Sample) -> Vec<Token> {
    let targets = &sample.targets[..sample.decoder_length - 1];
    let mut text = vec![];
    for token in &sample.encoder_tokens[..sample.encoder_length] {
        if !is_sentinel(token) {
            text.push(*token);
            continue;
        }
        let start = targets.iter().position(|target| target == token).unwrap() + 1;
        text.extend(targets[start..].iter().take_while(|target| !is_sentinel(target)));
    }
    text
}

fn num_sentinels(tokens: &[Token]) -> usize {
    tokens.iter().filter(|token| is_sentinel(token)).count()
}

#[test]
fn spans_that_do_not_fit_stay_in_the_text() {
    let mut config = T5DatasetConfig::new(512, 12, None);
    config.samples.short_sequence_probability = 0.0;
    let short = dataset(&config, &[TEXT]).read(0).unwrap();
    config.decoder_seq_length = 128;
    let long = dataset(&config, &[TEXT]).read(0).unwrap();
    assert!(short.decoder_length <= 12 && long.decoder_length > 12);
    assert_eq!(put_back(&short), put_back(&long));
    let kept = short.decoder_length - 1;
    assert_eq!(short.targets[..kept], long.targets[..kept]);
}

#[test]
fn what_is_wrong_is_said() {
    let documents = Arc::new(InMemorySentences::tokenize([TEXT], &ByteTokenizer));
    let error = |config: &T5DatasetConfig, tokenizer: Arc<dyn Tokenizer>| {
        T5Dataset::new(config, documents.clone(), 0..1, tokenizer, None)
            .unwrap_err()
            .to_string()
    };
    let message = error(&T5DatasetConfig::new(64, 16, None), Arc::new(ByteTokenizer));
    assert!(message.contains("samples of T5 need a token for padding"), "{message}");
    let message = error(&T5DatasetConfig::new(64, 2, None), Arc::new(MaskedByteTokenizer));
    assert!(
        message.contains("(--decoder-seq-length) must be at least 3, got 2"),
        "{message}"
    );
    let message = error(&T5DatasetConfig::new(3, 16, None), Arc::new(MaskedByteTokenizer));
    assert!(message.contains("(--seq-length) must be at least 4"), "{message}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn spans_put_back_are_the_text(
        seq_length in 4usize..120,
        decoder_seq_length in 3usize..60,
        seed in any::<u32>(),
        probability in 0.05..0.8,
    ) {
        let mut config = T5DatasetConfig::new(seq_length, decoder_seq_length, Some(10));
        config.samples.seed = seed;
        config.samples.masking.probability = probability;
        let texts = [TEXT, "A b c. D e f g."];
        let one = dataset(&config, &texts);
        config.samples.masking.probability = 1e-9;
        let nothing = dataset(&config, &texts);
        for index in (0..one.num_samples()).rev() {
            let sample = one.read(index).unwrap();
            let text = nothing.read(index).unwrap();
            prop_assert_eq!(put_back(&sample), text.encoder_tokens[..text.encoder_length].to_vec());
            prop_assert_eq!(text.decoder_length, 1);
            prop_assert_eq!(sample.encoder_tokens.len(), seq_length);
            prop_assert_eq!(sample.decoder_tokens.len(), decoder_seq_length);
            prop_assert_eq!(sample.targets.len(), decoder_seq_length);
            prop_assert!(sample.decoder_length <= decoder_seq_length);
            prop_assert_eq!(num_sentinels(&sample.encoder_tokens), num_sentinels(&sample.targets));
        }
    }
}
