//! Tests of `gpt_dataset`: a straightforward reference. Known answers are in `tests/sample_order.rs`.

use super::*;
use crate::in_memory::InMemoryDocuments;
use crate::mt19937::Mt19937;
use proptest::prelude::*;

/// Documents of the given lengths whose tokens count from 0 through all of them.
fn counting(lengths: &[usize]) -> Arc<InMemoryDocuments> {
    let mut documents = InMemoryDocuments::new(1 << 16);
    let mut next = 0;
    for &length in lengths {
        let tokens: Vec<u32> = (next..next + length as u32).collect();
        documents.push(&tokens);
        next += length as u32;
    }
    Arc::new(documents)
}

fn config(seq_length: usize, num_samples: usize, seed: u32) -> GptDatasetConfig {
    GptDatasetConfig::new(seq_length, num_samples as u64).with_seed(seed)
}

fn dataset(lengths: &[usize], seq_length: usize, num_samples: usize, seed: u32) -> GptDataset {
    let config = config(seq_length, num_samples, seed);
    GptDataset::new(&config, counting(lengths), 0..lengths.len()).unwrap()
}

/// All samples in training order.
fn samples(dataset: &GptDataset) -> Vec<Vec<u32>> {
    let read = |index| {
        let mut tokens = vec![];
        dataset.read_sample(index, &mut tokens).unwrap();
        tokens
    };
    (0..dataset.num_samples()).map(read).collect()
}

#[test]
fn a_sample_that_ends_a_document_is_followed_by_its_last_token() {
    let dataset = dataset(&[5], 4, 1, 1);
    assert_eq!(samples(&dataset), [[0, 1, 2, 3, 4]]);
    let mut starts = vec![];
    let stream = build::Stream::new(&[0, 0], &[5], 0);
    let collect = |some: &[[u32; 2]]| {
        starts.extend_from_slice(some);
        Ok(())
    };
    stream.sample_starts(4, 2, collect).unwrap();
    assert_eq!(starts, [[0, 0], [0, 4]]);
}

#[test]
fn the_threshold_of_the_last_epoch_is_rounded_down() {
    // 25 tokens, 2 per sample: 12 samples per epoch, of which 0.8 are 9.6, rounded down 9.
    let plan = |num_samples| {
        plan::plan_epochs(&config(2, num_samples, 0), 25, 1)
            .unwrap()
            .samples_before_last
    };
    assert_eq!(plan(12), None); // one epoch
    assert_eq!(plan(12 + 8), Some(12));
    assert_eq!(plan(12 + 9), None);
    assert_eq!(plan(12 + 12), None);
}

#[test]
fn the_order_is_that_of_the_epochs() {
    // 12 samples per epoch, and the second epoch is shuffled with the first where 9 of its samples are wanted.
    let of = |num_samples| dataset(&[10, 15], 2, num_samples, 0).order();
    assert_eq!(of(1), of(12));
    assert_ne!(of(12), of(13));
    assert_eq!(of(13), of(20));
    assert_ne!(of(20), of(21));
    assert_eq!(of(21), of(24));
    assert_ne!(of(24), of(25));
}

#[test]
fn only_the_documents_of_the_range_are_read() {
    let config = config(3, 50, 1234);
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
        let config = config(seq_length, num_samples, 0);
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

/// The samples as the definition has them: shuffle, join to one list, slice, shuffle.
fn reference(lengths: &[usize], config: &GptDatasetConfig) -> Vec<Vec<u32>> {
    let (s, extra) = (config.seq_length, usize::from(config.extra_token));
    let tokens: usize = lengths.iter().sum();
    let wanted = config.num_samples.map(|wanted| wanted as usize);
    let mut epochs = 1;
    while wanted.is_some_and(|wanted| epochs * tokens < wanted * s + extra) {
        epochs += 1;
    }
    let before_last = if epochs > 1 {
        ((epochs - 1) * tokens - extra) / s
    } else {
        0
    };
    let threshold = (0.8 * ((tokens - extra) / s) as f64) as usize;
    let alone = epochs > 1 && wanted.unwrap() - before_last < threshold;
    let mut generator = Mt19937::new(config.seed);
    let mut order = vec![];
    for some in if alone { vec![epochs - 1, 1] } else { vec![epochs] } {
        let mut documents: Vec<usize> = (0..some).flat_map(|_| 0..lengths.len()).collect();
        generator.shuffle(&mut documents);
        order.extend(documents);
    }
    let starts: Vec<usize> = (0..lengths.len())
        .map(|document| lengths[..document].iter().sum())
        .collect();
    let stream = order
        .iter()
        .flat_map(|&document| starts[document]..starts[document] + lengths[document]);
    let stream: Vec<u32> = stream.map(|token| token as u32).collect();
    let mut samples: Vec<Vec<u32>> = vec![];
    let mut start = 0;
    while start + s + extra <= stream.len() || (!config.drop_last_partial && start + extra < stream.len()) {
        let mut sample = stream[start..stream.len().min(start + s + extra)].to_vec();
        sample.resize(s + extra, 0);
        samples.push(sample);
        start += s;
    }
    let mut order: Vec<usize> = (0..samples.len()).collect();
    let (first, last) = order.split_at_mut(if alone { before_last } else { 0 });
    generator.shuffle(first);
    generator.shuffle(last);
    order.into_iter().map(|sample| samples[sample].clone()).collect()
}

proptest! {
    #[test]
    fn data_sets_of_one_order_agree_on_what_both_have(
        lengths in prop::collection::vec(3usize..9, 1..6),
        few in 1usize..40,
        more in 1usize..12,
        seed in 0u32..9,
    ) {
        let [few, more] = [few, few + more].map(|num_samples| dataset(&lengths, 2, num_samples, seed));
        if few.order() == more.order() {
            let [few, more] = [samples(&few), samples(&more)];
            prop_assert_eq!(&few[..], &more[..few.len()]);
        }
    }

    #[test]
    fn samples_are_those_of_the_reference(
        lengths in prop::collection::vec(0usize..40, 1..12),
        seq_length in 1usize..50,
        wanted in prop::option::of(1u64..300),
        seed: u32,
        extra_token: bool,
        drop_last_partial: bool,
    ) {
        let config = GptDatasetConfig { seq_length, num_samples: wanted, seed, extra_token, drop_last_partial };
        let tokens: usize = lengths.iter().sum();
        let one_sample = usize::from(extra_token) + if drop_last_partial { seq_length } else { 1 };
        let result = GptDataset::new(&config, counting(&lengths), 0..lengths.len());
        if tokens == 0 || (wanted.is_none() && tokens < one_sample) {
            prop_assert!(result.is_err());
        } else {
            prop_assert_eq!(samples(&result.unwrap()), reference(&lengths, &config));
        }
    }
}

proptest! {
    // Each case synchronises files with the disk.
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn mapped_and_own_orders_are_equal(
        lengths in prop::collection::vec(1usize..40, 3..12),
        seq_length in 1usize..20,
        wanted in 1u64..60,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let cache = IndexCache::new(folder.path());
        let config = GptDatasetConfig::new(seq_length, wanted);
        let range = 1..lengths.len();
        let own = GptDataset::new(&config, counting(&lengths), range.clone()).unwrap();
        for _ in 0..2 {
            let mapped = GptDataset::with_cache(&config, counting(&lengths), range.clone(), &cache).unwrap();
            prop_assert_eq!(samples(&mapped), samples(&own));
            prop_assert_eq!(mapped.index_bytes(), own.index_bytes());
        }
        // One index and its lock: other lengths, another range or other settings are other indices.
        prop_assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
        let mut other = lengths.clone();
        other[1] += 1;
        GptDataset::with_cache(&config, counting(&other), range.clone(), &cache).unwrap();
        GptDataset::with_cache(&config, counting(&lengths), 0..lengths.len(), &cache).unwrap();
        GptDataset::with_cache(&config.clone().with_seed(7), counting(&lengths), range, &cache).unwrap();
        prop_assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 8);
    }
}

#[test]
fn pieces_of_a_long_stream_fit_together() {
    // More documents than one turn of pieces holds.
    let lengths: Vec<u32> = (0..1000u32).map(|i| i * i % 7).collect();
    let mut documents: Vec<u32> = (0..4_400_000).map(|i| i % 1000 + 5).collect();
    Mt19937::new(5).shuffle(&mut documents);
    let tokens: u64 = documents
        .iter()
        .map(|&document| u64::from(lengths[document as usize - 5]))
        .sum();
    let num_samples = (tokens as usize - 1) / 50;
    let mut starts = vec![];
    let collect = |some: &[[u32; 2]]| {
        starts.extend_from_slice(some);
        Ok(())
    };
    let stream = build::Stream::new(&documents, &lengths, 5);
    stream.sample_starts(50, num_samples, collect).unwrap();
    let mut expected = vec![];
    let (mut place, mut token, mut next) = (0u32, 0u64, 0u64);
    for &document in &documents {
        let length = u64::from(lengths[document as usize - 5]);
        while next < token + length && expected.len() < num_samples {
            expected.push([place, (next - token) as u32]);
            next += 50;
        }
        token += length;
        place += 1;
    }
    assert!(starts == expected);
}

#[test]
fn a_last_sample_that_is_not_full_says_so() {
    let mut config = GptDatasetConfig::one_epoch(4);
    config.drop_last_partial = false;
    let dataset = GptDataset::new(&config, counting(&[7]), 0..1).unwrap();
    assert_eq!(dataset.num_samples(), 2);
    let mut tokens = vec![];
    let mut read: Vec<usize> = (0..2)
        .map(|index| dataset.read_sample(index, &mut tokens).unwrap())
        .collect();
    read.sort();
    assert_eq!(read, [3, 5]);
    assert_eq!(tokens.len(), 10);
}

#[test]
fn an_index_that_leads_outside_the_documents_is_an_error() {
    let mut dataset = dataset(&[5, 3], 4, 1, 1);
    let read = |dataset: &GptDataset| dataset.read_sample(0, &mut vec![]).unwrap_err().to_string();
    dataset.sample_index = IndexArray::Owned(vec![[0, 9]]);
    let message = read(&dataset);
    assert!(
        message.starts_with("the index of sample 0 leads to token 9 of document"),
        "{message}"
    );
    dataset.sample_index = IndexArray::Owned(vec![[3, 0]]);
    assert!(read(&dataset).contains("place 3 of the stream"));
    dataset.document_index = IndexArray::Owned(vec![2]);
    dataset.sample_index = IndexArray::Owned(vec![[0, 0]]);
    assert!(read(&dataset).contains("document 2"));
}
