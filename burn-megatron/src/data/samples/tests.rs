//! Tests of `samples`: known answers from numpy, and properties.

use super::*;
use proptest::prelude::*;

/// Documents of the given lengths whose tokens count from 0 through all of them.
fn counting(lengths: &[usize]) -> Arc<TokenDocuments> {
    let mut documents = TokenDocuments::new();
    let mut next = 0;
    for &length in lengths {
        let tokens: Vec<u16> = (next..next + length as u16).collect();
        documents.push(&tokens);
        next += length as u16;
    }
    Arc::new(documents)
}

fn dataset(lengths: &[usize], seq_length: usize, num_samples: usize, seed: u32) -> GptDataset {
    let config = GptDatasetConfig {
        seq_length,
        num_samples,
        seed,
    };
    GptDataset::new(&config, counting(lengths), 0..lengths.len()).unwrap()
}

/// All samples in training order.
fn samples(dataset: &GptDataset) -> Vec<Vec<u16>> {
    let read = |index| {
        let mut tokens = vec![];
        dataset.read_sample(index, &mut tokens).unwrap();
        tokens
    };
    (0..dataset.len() as u64).map(read).collect()
}

/// The samples in stream order.
fn unshuffled(dataset: &GptDataset) -> Vec<Vec<u16>> {
    let mut by_stream: Vec<_> = dataset.shuffle_index.iter().zip(samples(dataset)).collect();
    by_stream.sort();
    by_stream.into_iter().map(|(_, sample)| sample).collect()
}

// The known answers come from a script that shuffles with numpy 2.4.6's `RandomState`, joins the
// documents to one list and slices it.

#[test]
fn one_epoch_matches_numpy() {
    let dataset = dataset(&[5, 3, 9, 1, 7], 4, 5, 1234);
    assert_eq!(dataset.document_index, [4, 0, 1, 2, 3]);
    assert_eq!(dataset.shuffle_index, [5, 2, 3, 1, 0, 4]);
    assert_eq!(
        samples(&dataset),
        [
            [13, 14, 15, 16, 17],
            [1, 2, 3, 4, 5],
            [5, 6, 7, 8, 9],
            [22, 23, 24, 0, 1],
            [18, 19, 20, 21, 22],
            [9, 10, 11, 12, 13],
        ]
    );
}

#[test]
fn a_short_last_epoch_is_shuffled_alone_as_numpy_does() {
    let dataset = dataset(&[5, 3, 9, 1, 7], 4, 13, 1234);
    let document_index = [2, 2, 4, 1, 0, 3, 4, 0, 1, 3, 0, 4, 3, 2, 1];
    assert_eq!(dataset.document_index, document_index);
    let shuffle_index = [7, 11, 2, 3, 1, 9, 5, 4, 0, 8, 6, 10, 17, 13, 16, 15, 12, 14];
    assert_eq!(dataset.shuffle_index, shuffle_index);
    let samples = samples(&dataset);
    assert_eq!(samples[7], [15, 16, 18, 19, 20]);
    assert_eq!(samples[10], [24, 5, 6, 7, 0]);
    // The twelfth crosses from the first epochs into the last, and counts among the last.
    assert_eq!(samples[16], [7, 17, 0, 1, 2]);
    assert_eq!(samples[17], [19, 20, 21, 22, 23]);
}

#[test]
fn a_long_last_epoch_is_shuffled_among_the_others_as_numpy_does() {
    let dataset = dataset(&[5, 3, 0, 9, 1, 7, 2], 3, 17, 7);
    let document_index = [5, 4, 2, 5, 0, 1, 6, 1, 0, 3, 3, 6, 2, 4];
    assert_eq!(dataset.document_index, document_index);
    let shuffle_index = [2, 9, 1, 5, 10, 16, 13, 3, 14, 11, 12, 15, 0, 4, 6, 7, 8];
    assert_eq!(dataset.shuffle_index, shuffle_index);
    let samples = samples(&dataset);
    assert_eq!(samples[4], [2, 3, 4, 8]);
    assert_eq!(samples[15], [6, 7, 25, 26]);
}

#[test]
fn one_token_samples_over_three_epochs_match_numpy() {
    let dataset = dataset(&[3, 4, 4, 2], 1, 30, 99);
    assert_eq!(dataset.document_index, [2, 2, 0, 1, 0, 3, 3, 1, 2, 3, 1, 0]);
    assert_eq!(dataset.len(), 38);
    let samples = samples(&dataset);
    assert_eq!(samples[..4], [[0, 1], [3, 4], [6, 0], [12, 11]]);
    assert_eq!(samples[36..], [[11, 12], [6, 7]]);
}

#[test]
fn a_sample_that_ends_a_document_is_followed_by_its_last_token() {
    let dataset = dataset(&[5], 4, 1, 1);
    assert_eq!(samples(&dataset), [[0, 1, 2, 3, 4]]);
    let start = |position, offset| SampleStart { position, offset };
    let starts = sample_starts(
        &[0, 1],
        |_| 5,
        4,
        &Epochs {
            num_epochs: 1,
            num_samples: 2,
            samples_before_last: None,
        },
    );
    assert_eq!(starts, [start(0, 0), start(0, 4)]);
}

#[test]
fn the_threshold_of_the_last_epoch_is_rounded_down() {
    // 25 tokens, 2 per sample: 12 samples per epoch, of which 0.8 are 9.6, rounded down 9.
    let plan = |num_samples| {
        let config = GptDatasetConfig {
            seq_length: 2,
            num_samples,
            seed: 0,
        };
        plan_epochs(&config, 25).samples_before_last
    };
    assert_eq!(plan(12), None); // one epoch
    assert_eq!(plan(12 + 8), Some(12));
    assert_eq!(plan(12 + 9), None);
    assert_eq!(plan(12 + 12), None);
}

#[test]
fn only_the_documents_of_the_range_are_read() {
    let config = GptDatasetConfig {
        seq_length: 3,
        num_samples: 50,
        seed: 1234,
    };
    let dataset = GptDataset::new(&config, counting(&[4, 5, 6, 7]), 1..3).unwrap();
    for sample in samples(&dataset) {
        assert!(sample.iter().all(|token| (4..15).contains(token)), "{sample:?}");
    }
}

#[test]
fn a_sample_after_the_last_is_an_error() {
    let dataset = dataset(&[5, 3, 9, 1, 7], 4, 5, 1234);
    let mut tokens = vec![];
    for index in [6, u64::MAX] {
        let error = dataset.read_sample(index, &mut tokens).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("sample {index} requested from a data set of 6 samples")
        );
    }
    assert!(tokens.is_empty());
}

#[test]
fn impossible_configurations_are_errors() {
    let message = |seq_length, num_samples, lengths: &[usize]| {
        let config = GptDatasetConfig {
            seq_length,
            num_samples,
            seed: 0,
        };
        let result = GptDataset::new(&config, counting(lengths), 0..lengths.len());
        result.unwrap_err().to_string()
    };
    assert_eq!(
        message(0, 1, &[4]),
        "sequence length (--seq-length) must be at least 1, got 0"
    );
    assert_eq!(message(1, 0, &[4]), "number of samples must be at least 1, got 0");
    assert_eq!(
        message(1, 1, &[0, 0]),
        "number of tokens of the documents must be at least 1, got 0"
    );
    let too_many = 1 << 33;
    assert_eq!(
        message(1, too_many, &[1 << 14]),
        "number of samples must be at most 4294967295, got 8589950975"
    );
    assert!(message(usize::MAX, usize::MAX, &[2]).contains("must be at most 4294967295"));
}

proptest! {
    #[test]
    fn every_sample_has_its_tokens_and_neighbours_share_one(
        lengths in prop::collection::vec(0usize..40, 1..12),
        seq_length in 1usize..50,
        wanted in 1usize..60,
        seed: u32,
    ) {
        prop_assume!(lengths.iter().sum::<usize>() > 0);
        let dataset = dataset(&lengths, seq_length, wanted, seed);
        prop_assert!(dataset.len() >= wanted);
        let samples = unshuffled(&dataset);
        for sample in &samples {
            prop_assert_eq!(sample.len(), seq_length + 1);
        }
        for pair in samples.windows(2) {
            prop_assert_eq!(pair[0].last(), pair[1].first());
        }
    }

    #[test]
    fn one_epoch_covers_every_token_once(
        lengths in prop::collection::vec(0usize..60, 1..20),
        seq_length in 1usize..30,
        seed: u32,
    ) {
        let tokens: usize = lengths.iter().sum();
        prop_assume!(tokens > seq_length);
        let num_samples = (tokens - 1) / seq_length;
        let dataset = dataset(&lengths, seq_length, num_samples, seed);
        prop_assert_eq!(dataset.len(), num_samples);
        let mut inputs: Vec<u16> = samples(&dataset)
            .iter()
            .flat_map(|sample| &sample[..seq_length])
            .copied()
            .collect();
        inputs.sort();
        inputs.dedup();
        // All but the last token and what does not fill a sample.
        prop_assert_eq!(inputs.len(), num_samples * seq_length);
        prop_assert!(tokens - inputs.len() <= seq_length);
    }

    #[test]
    fn a_separate_last_epoch_comes_last(
        lengths in prop::collection::vec(1usize..40, 2..12),
        seq_length in 1usize..10,
        wanted in 1usize..300,
        seed: u32,
    ) {
        let tokens: usize = lengths.iter().sum();
        let config = GptDatasetConfig { seq_length, num_samples: wanted, seed };
        let epochs = plan_epochs(&config, tokens);
        let dataset = dataset(&lengths, seq_length, wanted, seed);
        prop_assert_eq!(dataset.len(), epochs.num_samples);
        let mut order = dataset.shuffle_index.clone();
        if let Some(before_last) = epochs.samples_before_last {
            let is_first = |&sample: &u32| (sample as usize) < before_last;
            prop_assert!(order[..before_last].iter().all(is_first));
        }
        order.sort();
        prop_assert_eq!(order, (0..epochs.num_samples as u32).collect::<Vec<_>>());
        // Every epoch, and the last among them, holds every document once.
        for epoch_document in 0..lengths.len() as u32 {
            let times = dataset.document_index.iter().filter(|&&d| d == epoch_document).count();
            prop_assert_eq!(times, epochs.num_epochs);
        }
    }

    #[test]
    fn the_order_depends_on_the_seed_alone(seed in 0u32..1000, other in 1000u32..2000) {
        let lengths: Vec<usize> = (0..40).map(|i| 5 + i * 7 % 23).collect();
        let first = dataset(&lengths, 6, 100, seed);
        let second = dataset(&lengths, 6, 100, seed);
        prop_assert_eq!(samples(&first), samples(&second));
        let third = dataset(&lengths, 6, 100, other);
        prop_assert_ne!(samples(&first), samples(&third));
    }
}
