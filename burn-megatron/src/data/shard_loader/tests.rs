//! Batches of every rank against those of one rank and of burn's own loader.

use std::collections::HashSet;

use burn::data::dataloader::DataLoaderBuilder;
use burn::data::dataset::InMemDataset;

use super::*;

#[derive(Clone)]
struct Numbers;

impl Batcher<u32, Vec<u32>> for Numbers {
    fn batch(&self, items: Vec<u32>, _device: &Device) -> Vec<u32> {
        items
    }
}

const SAMPLES: u32 = 53;

fn loader(rank: usize, ranks: usize, workers: usize) -> Arc<dyn DataLoader<Vec<u32>>> {
    let builder = ShardLoaderBuilder {
        rank,
        ranks,
        ..shard_loader(Numbers, &ParallelContext::single(0))
    };
    let builder = builder.batch_size(8).shuffle(7).num_workers(workers);
    let builder = builder.last_batch(LastBatch::Uneven);
    builder.build(InMemDataset::new((0..SAMPLES).collect())).unwrap()
}

/// The batches of two epochs.
fn two_epochs(loader: &dyn DataLoader<Vec<u32>>) -> Vec<Vec<u32>> {
    let epochs = loader.iter().chain(loader.iter());
    epochs.map(|batch| batch.expect("it is in memory")).collect()
}

#[test]
fn one_rank_has_the_batches_of_burns_loader() {
    let burn = DataLoaderBuilder::new(Numbers)
        .batch_size(8)
        .shuffle(7)
        .build(InMemDataset::new((0..SAMPLES).collect()));
    let ours = loader(0, 1, 0);
    assert_eq!(two_epochs(&*ours), two_epochs(&*burn));
    // burn-train moves its loaders before the first epoch.
    let [ours, burn] = [ours.to_device(&Device::flex()), burn.to_device(&Device::flex())];
    assert_eq!(two_epochs(&*ours), two_epochs(&*burn));
    assert_ne!(
        two_epochs(&*ours)[0],
        two_epochs(&*ours)[7],
        "each epoch has an order of its own"
    );
}

#[test]
fn shares_joined_are_the_batches_of_one_rank_whatever_the_workers() {
    let one = two_epochs(&*loader(0, 1, 0));
    for ranks in [2, 3, 5] {
        let shares: Vec<_> = (0..ranks).map(|rank| two_epochs(&*loader(rank, ranks, rank))).collect();
        let joined: Vec<Vec<u32>> = (0..one.len())
            .map(|batch| shares.iter().flat_map(|share| share[batch].clone()).collect())
            .collect();
        assert_eq!(joined, one, "{ranks} ranks");
    }
}

#[test]
fn progress_counts_the_samples_of_this_rank() {
    for workers in [0, 2] {
        let loader = loader(1, 2, workers);
        let mut iterator = loader.iter();
        let mut seen = 0;
        while let Some(batch) = iterator.next() {
            seen += batch.expect("it is in memory").len();
            let progress = iterator.progress();
            assert_eq!(
                (progress.items_processed, progress.items_total),
                (seen, loader.num_items())
            );
        }
        // Of the last five samples the first rank has three.
        assert_eq!(seen, 6 * 4 + 2);
    }
}

#[test]
fn shares_of_other_sizes_are_refused_unless_asked_for() {
    let build = |batch_size: usize, last: LastBatch| {
        let builder = ShardLoaderBuilder::<u32, Vec<u32>> {
            rank: 0,
            ranks: 2,
            ..shard_loader(Numbers, &ParallelContext::single(0))
        };
        let builder = builder.batch_size(batch_size).last_batch(last);
        builder.build(InMemDataset::new((0..101_u32).collect()))
    };
    for (batch_size, numbers) in [(32, "101 samples in batches of 32"), (33, "such as 32 or 34")] {
        let error = build(batch_size, LastBatch::default());
        let message = error.err().expect("the shares differ").to_string();
        assert!(
            message.contains(numbers) && message.contains("LastBatch::Uneven"),
            "{message}"
        );
        assert!(build(batch_size, LastBatch::Uneven).is_ok());
    }
    assert!(build(32, LastBatch::Drop).is_ok());
}

#[test]
fn a_slice_holds_samples_of_this_rank() {
    let sharded = loader(1, 2, 0);
    let all: HashSet<u32> = sharded
        .slice(0, sharded.num_items())
        .iter()
        .flatten()
        .flatten()
        .collect();
    let halves = [sharded.slice(0, 13), sharded.slice(13, sharded.num_items())];
    assert_eq!(halves.each_ref().map(|half| half.num_items()), [13, 13]);
    let joined: HashSet<u32> = halves.iter().flat_map(|half| half.iter().flatten().flatten()).collect();
    assert_eq!((joined.len(), &joined), (26, &all));
}

#[test]
fn an_iterator_dropped_early_ends_its_workers() {
    let loader = loader(0, 1, 3);
    drop(loader.iter().next());
    assert_eq!(loader.iter().take(2).flatten().count(), 2);
}

#[test]
#[should_panic(expected = "sample 13 is broken")]
fn a_panic_while_loading_is_passed_on() {
    struct Broken;
    impl Batcher<u32, Vec<u32>> for Broken {
        fn batch(&self, items: Vec<u32>, _device: &Device) -> Vec<u32> {
            assert!(!items.contains(&13), "sample 13 is broken");
            items
        }
    }
    let loader = shard_loader(Broken, &ParallelContext::single(0))
        .batch_size(4)
        .num_workers(2);
    let loader = loader.build(InMemDataset::new((0..SAMPLES).collect())).unwrap();
    loader.iter().for_each(drop);
}
