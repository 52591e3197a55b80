//! Tests of `loader`: contents, running ahead, errors and the end of its thread.

use super::*;
use cubecl_kernels::flash_attention::Documents;

use crate::data::{
    DocumentMarking, DocumentRules, GptDataset, GptDatasetConfig, InMemoryDocuments, SamplerConfig, Samples,
    TokenBatches,
};
use proptest::prelude::*;
use std::{
    panic::{self, AssertUnwindSafe},
    sync::atomic::{AtomicUsize, Ordering},
    time::Instant,
};

const SEQ_LENGTH: usize = 3;

fn dataset() -> Arc<GptDataset> {
    let mut documents = InMemoryDocuments::new(100);
    documents.push(&(0..50).collect::<Vec<u32>>());
    documents.push(&(50..90).collect::<Vec<u32>>());
    let config = GptDatasetConfig::new(SEQ_LENGTH, 20);
    Arc::new(GptDataset::new(&config, Arc::new(documents), 0..2).unwrap())
}

fn batches(dataset: Arc<GptDataset>) -> Arc<TokenBatches> {
    Arc::new(TokenBatches::new(dataset))
}

fn sampler(num_samples: u64) -> Sampler {
    let config = SamplerConfig {
        num_samples,
        consumed_samples: 0,
        micro_batch_size: 2,
        data_parallel_size: 2,
        data_parallel_rank: 1,
    };
    Sampler::new(config).unwrap()
}

fn ahead(micro_batches: usize) -> LoaderConfig {
    LoaderConfig {
        micro_batches_ahead: NonZeroUsize::new(micro_batches).unwrap(),
        ..LoaderConfig::new()
    }
}

fn empty_batch() -> MicroBatch {
    MicroBatch {
        seq_length: SEQ_LENGTH,
        ..MicroBatch::default()
    }
}

/// Waits until `count` reaches `expected`, then gives it time to go beyond; returns it.
fn settled(count: &AtomicUsize, expected: usize) -> usize {
    let deadline = Instant::now() + Duration::from_secs(20);
    while count.load(Ordering::SeqCst) < expected && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(Duration::from_millis(100));
    count.load(Ordering::SeqCst)
}

#[test]
fn micro_batches_hold_the_samples_of_the_rank() {
    let dataset = dataset();
    let loader = Loader::start(batches(dataset.clone()), sampler(20), ahead(2)).unwrap();
    let micro_batches: Vec<MicroBatch> = loader.map(Result::unwrap).collect();
    let ids: Vec<_> = micro_batches.iter().map(|batch| &batch.sample_ids).collect();
    assert_eq!(ids, [&[2, 3], &[6, 7], &[10, 11], &[14, 15], &[18, 19]]);
    for batch in &micro_batches {
        assert_eq!((batch.micro_batch_size, batch.seq_length), (2, SEQ_LENGTH));
        for (i, &id) in batch.sample_ids.iter().enumerate() {
            let mut sample = vec![];
            dataset.read_sample(id, &mut sample).unwrap();
            let sample: Vec<i32> = sample.into_iter().map(|token| token as i32).collect();
            let row = i * SEQ_LENGTH..(i + 1) * SEQ_LENGTH;
            assert_eq!(batch.tokens[row.clone()], sample[..SEQ_LENGTH]);
            assert_eq!(batch.targets[row], sample[1..]);
        }
    }
}

/// Returns the tokens, numbers of another field and the mask of both rows, sorted by the first token.
fn sorted_rows(batch: &MicroBatch, numbers: &[i32]) -> Vec<(Vec<i32>, Vec<i32>, Vec<f32>)> {
    let mask = batch.loss_mask.as_ref().unwrap();
    let mut rows: Vec<_> = (0..2)
        .map(|row| row * SEQ_LENGTH..(row + 1) * SEQ_LENGTH)
        .map(|row| {
            let (tokens, numbers) = (batch.tokens[row.clone()].to_vec(), numbers[row.clone()].to_vec());
            (tokens, numbers, mask[row].to_vec())
        })
        .collect();
    rows.sort_by_key(|row| row.0[0]);
    rows
}

#[test]
fn what_a_sample_lacks_does_not_count_in_the_loss() {
    let mut documents = InMemoryDocuments::new(100);
    documents.push(&[1, 2, 3, 4, 5]);
    let mut config = GptDatasetConfig::one_epoch(SEQ_LENGTH);
    config.drop_last_partial = false;
    let dataset = GptDataset::new(&config, Arc::new(documents.clone()), 0..1).unwrap();
    let batch = batches(Arc::new(dataset)).gather(vec![0, 1]).unwrap();
    let rows = sorted_rows(&batch, &batch.targets);
    assert_eq!(rows[0], (vec![1, 2, 3], vec![2, 3, 4], vec![1.0; 3]));
    assert_eq!(rows[1], (vec![4, 5, 0], vec![5, 0, 0], vec![1.0, 0.0, 0.0]));
    // Without an extra token the last input has no target.
    let mut config = GptDatasetConfig::one_epoch(SEQ_LENGTH);
    config.extra_token = false;
    let dataset = GptDataset::new(&config, Arc::new(documents), 0..1).unwrap();
    let batch = batches(Arc::new(dataset)).gather(vec![0]).unwrap();
    assert_eq!((batch.tokens, batch.targets), (vec![1, 2, 3], vec![2, 3, 0]));
    assert_eq!(batch.loss_mask, Some(vec![1.0, 1.0, 0.0]));
}

#[test]
fn documents_begin_again_after_their_end() {
    let mut documents = InMemoryDocuments::new(100);
    documents.push(&[1, 9, 3, 4, 9, 6, 7]);
    let mut config = GptDatasetConfig::one_epoch(SEQ_LENGTH);
    config.extra_token = false;
    let dataset = Arc::new(GptDataset::new(&config, Arc::new(documents), 0..1).unwrap());
    let gather = |rules| {
        let marking = DocumentMarking {
            end_of_document: 9,
            rules,
        };
        let batches = TokenBatches::new(dataset.clone()).with_marking(Some(marking));
        batches.gather(vec![0, 1]).unwrap()
    };
    assert_eq!(
        gather(DocumentRules::default()),
        batches(dataset.clone()).gather(vec![0, 1]).unwrap()
    );
    let batch = gather(DocumentRules {
        reset_position_ids: true,
        reset_attention_mask: true,
        eod_mask_loss: true,
    });
    let rows = sorted_rows(&batch, batch.position_ids.as_ref().unwrap());
    // The last input of each has no target.
    assert_eq!(rows[0], (vec![1, 9, 3], vec![0, 1, 0], vec![1.0, 0.0, 0.0]));
    assert_eq!(rows[1], (vec![4, 9, 6], vec![0, 1, 0], vec![1.0, 0.0, 0.0]));
    let expected = Documents::from_lengths(SEQ_LENGTH, &[vec![2, 1], vec![2, 1]]);
    assert_eq!(batch.documents, Some(expected.unwrap()));
}

#[test]
fn how_far_the_loader_runs_ahead_changes_nothing() {
    let run = |micro_batches| {
        let loader = Loader::start(batches(dataset()), sampler(20), ahead(micro_batches)).unwrap();
        loader.map(Result::unwrap).collect::<Vec<_>>()
    };
    assert_eq!(run(1), run(100));
}

#[test]
fn the_loader_runs_ahead_but_not_without_bound() {
    let gathered = Arc::new(AtomicUsize::new(0));
    let count = gathered.clone();
    let source = std::iter::repeat_with(move || {
        count.fetch_add(1, Ordering::SeqCst);
        Ok(empty_batch())
    });
    let mut loader = Loader::spawn(source, ahead(3)).unwrap();
    // Three wait in the channel and one at its entrance, before anyone asked for any.
    assert_eq!(settled(&gathered, 4), 4);
    loader.next().unwrap().unwrap();
    assert_eq!(settled(&gathered, 5), 5);
}

#[test]
fn dropping_ends_and_joins_the_thread() {
    let owner = Arc::new(());
    let held = owner.clone();
    let source = std::iter::repeat_with(move || {
        let _held = &held;
        Ok(empty_batch())
    });
    let mut loader = Loader::spawn(source, ahead(2)).unwrap();
    loader.next().unwrap().unwrap();
    drop(loader);
    assert_eq!(Arc::strong_count(&owner), 1, "the thread is gone with what it held");
}

#[test]
fn a_failing_sample_is_delivered_in_its_place() {
    // The data set has 29 samples, the sampler continues to 40.
    let mut loader = Loader::start(batches(dataset()), sampler(40), ahead(1)).unwrap();
    for _ in 0..6 {
        loader.next().unwrap().unwrap();
    }
    let batch = loader.next().unwrap().unwrap();
    assert_eq!(batch.sample_ids, [26, 27]);
    let error = loader.next().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "sample 30 requested from a data set of 29 samples");
    assert!(loader.next().is_none());
    assert!(loader.next().is_none());
}

#[test]
fn a_panic_of_the_thread_is_delivered() {
    let source = (0..3).map(|i| {
        assert!(i < 1, "planted panic at {i}");
        Ok(empty_batch())
    });
    let mut loader = Loader::spawn(source, ahead(1)).unwrap();
    loader.next().unwrap().unwrap();
    let error = loader.next().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "the loader's thread panicked: planted panic at 1");
    assert!(loader.next().is_none());
}

#[test]
fn dropping_a_loader_whose_thread_panicked_does_not_panic() {
    let source = (0..1).map(|_| panic!("planted panic"));
    let loader = Loader::spawn(source, ahead(1)).unwrap();
    assert!(panic::catch_unwind(AssertUnwindSafe(|| drop(loader))).is_ok());
}

#[test]
fn waiting_for_a_stuck_source_times_out_and_can_go_on() {
    let (release, stuck) = mpsc::channel::<()>();
    let source = (0..1).map(move |_| {
        stuck.recv().expect("released by the test");
        Ok(empty_batch())
    });
    let config = LoaderConfig {
        timeout: Duration::from_millis(50),
        ..LoaderConfig::new()
    };
    let mut loader = Loader::spawn(source, config).unwrap();
    let error = loader.next().unwrap().unwrap_err();
    assert!(matches!(error, DataError::LoaderTimeout { .. }), "{error}");
    release.send(()).unwrap();
    loader.timeout = Duration::from_secs(20);
    assert!(loader.next().unwrap().is_ok());
    assert!(loader.next().is_none());
}

/// What a data-parallel rank reads after `consumed_samples` of 29 samples.
fn read(micro_batch_size: usize, data_parallel_size: usize, rank: usize, consumed_samples: u64) -> Vec<MicroBatch> {
    loader(micro_batch_size, data_parallel_size, rank, consumed_samples)
        .map(Result::unwrap)
        .collect()
}

fn loader(micro_batch_size: usize, data_parallel_size: usize, rank: usize, consumed_samples: u64) -> Loader {
    let sampler = Sampler::new(SamplerConfig {
        num_samples: 29,
        consumed_samples,
        micro_batch_size,
        data_parallel_size,
        data_parallel_rank: rank,
    });
    Loader::start(batches(dataset()), sampler.unwrap(), ahead(2)).unwrap()
}

proptest! {
    #[test]
    fn a_resumed_loader_yields_the_rest_of_an_undisturbed_one(
        micro_batch_size in 1usize..4,
        (data_parallel_size, rank) in (1usize..5).prop_flat_map(|size| (Just(size), 0..size)),
        rounds in 0usize..30,
    ) {
        let whole = read(micro_batch_size, data_parallel_size, rank, 0);
        let rounds = rounds % (whole.len() + 1);
        let consumed = (rounds * micro_batch_size * data_parallel_size) as u64;
        prop_assert_eq!(&read(micro_batch_size, data_parallel_size, rank, consumed), &whole[rounds..]);
    }

    #[test]
    fn a_loader_resumed_in_another_layout_leaves_nothing_out(
        micro_batch_size in 1usize..4,
        data_parallel_size in 1usize..5,
        consumed in 0u64..29,
    ) {
        let ranks: Vec<_> = (0..data_parallel_size)
            .map(|rank| read(micro_batch_size, data_parallel_size, rank, consumed))
            .collect();
        let rounds = (0..ranks[0].len()).flat_map(|round| ranks.iter().map(move |batches| &batches[round]));
        let ids: Vec<u64> = rounds.flat_map(|batch| batch.sample_ids.clone()).collect();
        let drawn = ranks[0].len() * micro_batch_size * data_parallel_size;
        prop_assert_eq!(ids, (consumed..29).take(drawn).collect::<Vec<_>>());
    }
}

#[test]
fn batches_that_grow_are_the_samples_in_order_whatever_the_layout() {
    for (micro_batch_size, data_parallel_size) in [(4, 1), (1, 4), (2, 2), (1, 1)] {
        let mut loaders: Vec<_> = (0..data_parallel_size)
            .map(|rank| loader(micro_batch_size, data_parallel_size, rank, 0))
            .collect();
        let mut consumed = 0;
        for size in [4, 4, 8, 12] {
            let rounds = size / (micro_batch_size * data_parallel_size);
            let mut ids: Vec<u64> = loaders
                .iter_mut()
                .flat_map(|loader| loader.take(rounds).flat_map(|batch| batch.unwrap().sample_ids))
                .collect();
            ids.sort_unstable();
            assert_eq!(ids, (consumed..consumed + size as u64).collect::<Vec<_>>());
            consumed += size as u64;
        }
    }
}
