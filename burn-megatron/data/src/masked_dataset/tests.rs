//! Tests of `masked_dataset`: numpy's and C++'s draws, the map of samples, which tokens are masked, and which
//! settings are valid.

use std::sync::Arc;

use proptest::prelude::*;
use rand_mt::Mt64;

use super::draws::cumulative;
use super::sample_map::{SampleMap, SampleMapConfig};
use super::{Masking, MaskingConfig, NgramLengths, RandomState};
use crate::in_memory::InMemorySentences;
use crate::index_cache::IndexCache;
use crate::indexed_dataset::SentenceDocuments;
use crate::samples::SampleError;
use crate::tokenizer::{MaskedByteTokenizer, Token, Tokenizer};

#[test]
fn draws_are_numpys() {
    // numpy 2.4.6, one generator: `RandomState(1234)`.
    let mut random = RandomState::new(1234);
    assert_eq!(
        [random.random(), random.random()],
        [0.1915194503788923, 0.6221087710398319]
    );
    let integers = [1, 2, 7, 1000, 1 << 31].map(|values: u32| random.up_to(values - 1));
    assert_eq!(integers, [0, 0, 4, 664, 1_165_481_977]);
    assert_eq!(
        [(); 8].map(|()| random.geometric(0.2) as u32),
        [7, 2, 2, 8, 15, 10, 2, 4]
    );
    let sums = cumulative(&[0.1, 0.2, 0.3, 0.2, 0.2]);
    assert_eq!([(); 8].map(|()| random.choice(&sums)), [3, 3, 2, 2, 2, 0, 3, 4]);
}

#[test]
fn the_64_bit_generator_is_that_of_cpp() {
    // The C++ standard asks for this 10000th number of a default `std::mt19937_64`.
    let mut generator = Mt64::new(5489);
    assert_eq!(
        (0..10_000).map(|_| generator.next_u64()).last(),
        Some(9981545732273789042)
    );
}

fn documents(lengths: &[&[usize]]) -> InMemorySentences {
    let mut store = InMemorySentences::new(100);
    for document in lengths {
        store.push(document.iter().map(|&length| vec![7; length]));
    }
    store
}

fn map_config(max_length: usize) -> SampleMapConfig {
    SampleMapConfig {
        max_length,
        min_sentences: 2,
        short_sequence_probability: 0.0,
        num_samples: None,
        seed: 1,
    }
}

fn sorted(config: &SampleMapConfig, store: &InMemorySentences) -> Vec<(std::ops::Range<usize>, usize)> {
    let map = SampleMap::new(config, store, &(0..store.num_whole_documents()), None).unwrap();
    let mut samples: Vec<_> = (0..map.len() as u64).map(|index| map.sample(index).unwrap()).collect();
    samples.sort_by_key(|(sentences, _)| sentences.start);
    samples
}

#[test]
fn documents_are_cut_where_samples_are_full_and_two_sentences_are_left() {
    let store = documents(&[
        &[],
        &[50],
        &[4, 4, 4, 4, 4, 4, 4],
        &[10, 10, 1, 1, 1],
        &[4, 513, 4],
        &[512, 512],
    ]);
    // Of sentences 1 to 7 the first 3 have 12 tokens, and 4 are left; of these the first 3 would leave one alone.
    let samples = sorted(&map_config(10), &store);
    assert_eq!(
        samples,
        [(1..4, 10), (4..8, 10), (8..10, 10), (10..13, 10), (16..18, 10)]
    );
    let one = SampleMapConfig {
        min_sentences: 1,
        ..map_config(10)
    };
    let samples = sorted(&one, &store);
    assert_eq!(
        samples,
        [
            (0..1, 10),
            (1..4, 10),
            (4..8, 10),
            (8..9, 10),
            (9..10, 10),
            (10..13, 10),
            (16..18, 10)
        ]
    );
}

#[test]
fn whole_epochs_give_at_least_the_samples_that_are_wanted() {
    let store = documents(&[&[4; 9], &[3; 8]]);
    let count = |num_samples| {
        let config = SampleMapConfig {
            num_samples,
            ..map_config(10)
        };
        SampleMap::new(&config, &store, &(0..2), None).unwrap().len()
    };
    assert_eq!(
        [
            count(None),
            count(Some(1)),
            count(Some(5)),
            count(Some(6)),
            count(Some(11))
        ],
        [5, 5, 5, 10, 15]
    );
}

#[test]
fn a_cached_map_is_the_same_and_its_key_has_the_lengths() {
    let folder = tempfile::tempdir().unwrap();
    let cache = IndexCache::new(folder.path());
    let store = documents(&[&[4; 30], &[3; 8]]);
    let config = SampleMapConfig {
        num_samples: Some(40),
        ..map_config(10)
    };
    let all = |map: &SampleMap| {
        (0..map.len() as u64)
            .map(|index| map.sample(index).unwrap())
            .collect::<Vec<_>>()
    };
    let own = all(&SampleMap::new(&config, &store, &(0..2), None).unwrap());
    let count = || {
        std::fs::read_dir(folder.path())
            .unwrap()
            .filter(|entry| {
                entry
                    .as_ref()
                    .unwrap()
                    .path()
                    .extension()
                    .is_some_and(|extension| extension == "index")
            })
            .count()
    };
    for _ in 0..2 {
        assert_eq!(
            all(&SampleMap::new(&config, &store, &(0..2), Some(&cache)).unwrap()),
            own
        );
        assert_eq!(count(), 2);
    }
    let other = documents(&[&[4; 29], &[5], &[3; 8]]);
    SampleMap::new(&config, &other, &(0..3), Some(&cache)).unwrap();
    assert_eq!(count(), 4);
}

#[test]
fn documents_without_a_sample_are_an_error_that_counts_them() {
    let store = documents(&[&[5], &[600, 1]]);
    let error = SampleMap::new(&map_config(10), &store, &(0..2), None).err().unwrap();
    let message = error.to_string();
    assert!(
        message.contains("of 2 documents 1 have at least 2 sentences"),
        "{message}"
    );
    let wrong = SampleMapConfig {
        short_sequence_probability: 1.5,
        ..map_config(10)
    };
    let message = SampleMap::new(&wrong, &store, &(0..2), None).err().unwrap().to_string();
    assert!(
        message.contains("(--short-seq-prob) must be from 0 to 1, got 1.5"),
        "{message}"
    );
}

fn masking(config: &MaskingConfig) -> Masking {
    Masking::new(config, &MaskedByteTokenizer.token_roles()).unwrap()
}

#[test]
fn settings_of_masks_have_ranges() {
    for probability in [0.0, 1.0, f64::NAN, -0.1] {
        let config = MaskingConfig {
            probability,
            ..MaskingConfig::bert()
        };
        let error = Masking::new(&config, &MaskedByteTokenizer.token_roles()).unwrap_err();
        assert!(matches!(error, SampleError::Probability { .. }), "{error}");
    }
    let config = MaskingConfig {
        max_ngram: 0,
        ..MaskingConfig::bert()
    };
    let error = Masking::new(&config, &MaskedByteTokenizer.token_roles()).unwrap_err();
    assert!(error.to_string().contains("must be from 1 to"), "{error}");
}

fn any_masking() -> impl Strategy<Value = MaskingConfig> {
    let lengths = prop_oneof![
        Just(NgramLengths::ShortOften),
        Just(NgramLengths::LongOften),
        Just(NgramLengths::Geometric)
    ];
    let parts = (0.01..0.9, 1usize..12, lengths, any::<bool>());
    parts.prop_map(|(probability, max_ngram, lengths, whole_words)| MaskingConfig {
        probability,
        max_ngram,
        lengths,
        whole_words,
    })
}

proptest! {
    #[test]
    fn masks_have_whole_words_no_special_token_and_no_token_twice(
        config in any_masking(),
        text in "([a-c ]{1,8} ?){1,30}",
        border in 0usize..40,
        seed in any::<u32>(),
    ) {
        let mut tokens = vec![MaskedByteTokenizer::CLS];
        tokens.extend(text.bytes().map(Token::from));
        tokens.insert(border.min(tokens.len() - 1) + 1, MaskedByteTokenizer::SEP);
        let tokenizer: Arc<dyn Tokenizer> = Arc::new(MaskedByteTokenizer);
        let mut masked = vec![];
        let mut random = RandomState::new(seed);
        let ngrams = masking(&config).choose(&tokens, tokens.len(), &*tokenizer, &mut random, |_, place| {
            masked.push(place);
        });
        let mut places = ngrams.concat();
        prop_assert!(places.is_sorted(), "n-grams are sorted and do not overlap: {:?}", ngrams);
        masked.sort_unstable();
        prop_assert_eq!(&places, &masked);
        places.dedup();
        prop_assert_eq!(places.len(), masked.len());
        let most = (tokens.len() as f64 * config.probability).round().max(1.0);
        prop_assert!(masked.len() as f64 <= most);
        prop_assert!(masked.iter().all(|&place| tokens[place] < 256));
        if config.whole_words {
            for place in 1..tokens.len() {
                if tokenizer.continues_word(Some(tokens[place - 1]), tokens[place]) {
                    prop_assert_eq!(masked.contains(&place), masked.contains(&(place - 1)), "place {}", place);
                }
            }
        }
    }
}
