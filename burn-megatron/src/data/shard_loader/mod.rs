//! `shard_loader`: burn's `DataLoader`, each data-parallel rank with its own share of every global batch;
//! `placed_loader`: the same, with batches that are placed on a mesh.

#[cfg(feature = "slot")]
mod placing;
mod source;
mod workers;

use std::sync::Arc;

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::data::dataset::transform::{SelectionDataset, shuffled_indices};
use burn::data::dataset::{Dataset, DatasetError};
use burn::tensor::Device;
use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::StdRng;

#[cfg(feature = "slot")]
pub use self::placing::{PlaceSamples, SampleShare, placed_loader};
use self::source::{Cut, Epoch, Source};
use self::workers::Workers;
use super::error::DataError;
use super::global_batches::{GlobalBatches, LastBatch};
use crate::context::ParallelContext;
use crate::random::CurrentStep;

/// Returns a builder of data loaders, with the methods of burn's `DataLoaderBuilder`, in which the batch size is that
/// of all data-parallel ranks together and each rank loads its own share of every batch.
///
/// Global batch k holds the same samples, in the same order, on any number of ranks, with any number of workers; with
/// one rank, they are those of burn's own loader without workers. See [`GlobalBatches`] for who gets which, and
/// [`LastBatch`] for what happens to the last batch.
///
/// Shares of a batch are equal: a batch size or a last batch that the ranks do not divide is refused, as the mean over
/// ranks of their mean losses would not be the mean over samples. [`LastBatch::Uneven`] accepts shares that differ by
/// one sample: in a program with `ParallelLearner` (feature `learner`), which weights them, or in a loop of your own
/// that does so by [`GlobalBatches::weight`].
///
/// # Communication
/// None: every rank draws the same order from the same seed.
///
/// # Examples
/// ```
/// use burn::data::dataloader::{DataLoader, batcher::Batcher};
/// use burn::data::dataset::InMemDataset;
/// use burn::tensor::Device;
/// use burn_megatron::context::ParallelContext;
/// use burn_megatron::data::shard_loader;
///
/// #[derive(Clone)]
/// struct Numbers;
/// impl Batcher<u32, Vec<u32>> for Numbers {
///     fn batch(&self, items: Vec<u32>, _device: &Device) -> Vec<u32> {
///         items
///     }
/// }
///
/// let context = ParallelContext::single(0);
/// let loader = shard_loader(Numbers, &context)
///     .batch_size(4)
///     .num_workers(2)
///     .build(InMemDataset::new((0..10).collect()))?;
/// let batches = loader.iter().collect::<Result<Vec<_>, _>>()?;
/// assert_eq!(batches, [vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8, 9]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn shard_loader<I, O>(
    batcher: impl Batcher<I, O> + 'static,
    context: &ParallelContext,
) -> ShardLoaderBuilder<I, O> {
    let group = context.data_group();
    ShardLoaderBuilder {
        batcher: Arc::new(batcher),
        rank: group.rank(),
        ranks: group.size(),
        batch_size: 1,
        shuffle: None,
        num_workers: 0,
        last_batch: LastBatch::default(),
        device: None,
        cut: None,
        step: Some(context.current_step().clone()),
    }
}

/// Makes a burn `DataLoader` of one rank's shares of the global batches; returned by [`shard_loader`], and with the
/// feature `slot` by `placed_loader`.
pub struct ShardLoaderBuilder<I, O> {
    batcher: Arc<dyn Batcher<I, O>>,
    rank: usize,
    ranks: usize,
    batch_size: usize,
    shuffle: Option<u64>,
    num_workers: usize,
    last_batch: LastBatch,
    device: Option<Device>,
    /// `None` if a batch is this rank's share alone.
    cut: Option<Arc<dyn Cut<O>>>,
    /// Where batches are noted, if each is one of all ranks.
    step: Option<CurrentStep>,
}

impl<I, O> ShardLoaderBuilder<I, O>
where
    I: Send + Sync + Clone + 'static,
    O: Send + 'static,
{
    /// Sets the samples of a batch, over all ranks together; 1 if not given, as in burn.
    pub fn batch_size(self, batch_size: usize) -> Self {
        Self { batch_size, ..self }
    }

    /// Shuffles the samples again in each epoch, from this seed, which must be the same on every rank.
    pub fn shuffle(self, seed: u64) -> Self {
        Self {
            shuffle: Some(seed),
            ..self
        }
    }

    /// Sets the threads of this rank that load ahead; none if not given. The order of the batches does not depend on
    /// it.
    pub fn num_workers(self, num_workers: usize) -> Self {
        Self { num_workers, ..self }
    }

    /// Sets what happens to the samples that remain when no full batch does, and whether shares of a batch may differ;
    /// [`LastBatch::Share`] if not given.
    pub fn last_batch(self, last_batch: LastBatch) -> Self {
        Self { last_batch, ..self }
    }

    /// Sets the device on which batches are made; the default one if not given.
    pub fn set_device(self, device: Device) -> Self {
        Self {
            device: Some(device),
            ..self
        }
    }

    /// Returns the loader of this rank's shares of a dataset, which must be the same on every rank. Its `num_items` and
    /// progress count this rank's samples, or those of whole batches where these are placed on a mesh.
    ///
    /// # Errors
    /// The errors of [`GlobalBatches::new`].
    pub fn build<D: Dataset<I> + 'static>(self, dataset: D) -> Result<Arc<dyn DataLoader<O>>, DataError> {
        let batches = GlobalBatches::new(dataset.len(), self.batch_size, self.ranks, self.last_batch)?;
        let source = Source {
            dataset: Arc::new(dataset),
            batcher: self.batcher,
            device: self.device.unwrap_or_default(),
            batches,
            rank: self.rank,
            cut: self.cut,
            step: self.step,
        };
        Ok(Arc::new(ShardLoader {
            source: Arc::new(source),
            num_workers: self.num_workers,
            rng: self.shuffle.map(|seed| Mutex::new(StdRng::seed_from_u64(seed))),
        }))
    }
}

/// A burn `DataLoader` over one rank's shares of the global batches.
struct ShardLoader<I, O> {
    source: Arc<Source<I, O>>,
    num_workers: usize,
    /// `None` without shuffling.
    rng: Option<Mutex<StdRng>>,
}

impl<I, O> ShardLoader<I, O>
where
    I: Send + Sync + Clone + 'static,
    O: Send + 'static,
{
    fn with_source(&self, source: Source<I, O>) -> Arc<dyn DataLoader<O>> {
        Arc::new(Self {
            source: Arc::new(source),
            num_workers: self.num_workers,
            // Of its own, as burn gives one to the copies of its loader.
            rng: self.rng.as_ref().map(|rng| Mutex::new(rng.lock().fork())),
        })
    }
}

impl<I, O> DataLoader<O> for ShardLoader<I, O>
where
    I: Send + Sync + Clone + 'static,
    O: Send + 'static,
{
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<O> + 'a> {
        let order = self.rng.as_ref().map(|rng| {
            // As in burn: the epoch's generator is one that has branched off.
            let mut epoch = rng.lock().fork();
            shuffled_indices(self.source.dataset.len(), &mut epoch).into()
        });
        let epoch = Epoch {
            source: self.source.clone(),
            order,
        };
        Box::new(ShardIterator {
            workers: (self.num_workers > 0).then(|| Workers::start(&epoch, self.num_workers)),
            epoch,
            next: 0,
            processed: 0,
        })
    }

    fn num_items(&self) -> usize {
        self.source.num_items()
    }

    fn to_device(&self, device: &Device) -> Arc<dyn DataLoader<O>> {
        self.with_source(Source {
            device: device.clone(),
            ..(*self.source).clone()
        })
    }

    /// Returns a loader of some of this rank's samples, counted as [`num_items`](DataLoader::num_items) counts them in
    /// the order without shuffling. It is of this rank alone, and shuffles them among themselves. Where batches are
    /// placed on a mesh, it is of all ranks.
    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<O>> {
        let Source { batches, rank, .. } = *self.source;
        let shares = (0..batches.num_batches()).flat_map(|batch| batches.share(batch, rank));
        let places = shares.skip(start).take(end.saturating_sub(start)).collect();
        let dataset: SelectionDataset<Arc<dyn Dataset<I>>, I> =
            SelectionDataset::from_indices_checked(Arc::new(self.source.dataset.clone()), places);
        let share = batches.share(0, rank).len().max(1);
        self.with_source(Source {
            batches: GlobalBatches::new(dataset.len(), share, 1, LastBatch::Share)
                .expect("one rank divides everything"),
            dataset: Arc::new(dataset),
            rank: 0,
            step: None,
            ..(*self.source).clone()
        })
    }
}

/// Iterates over this rank's shares.
struct ShardIterator<I, O> {
    epoch: Epoch<I, O>,
    workers: Option<Workers<Result<O, DatasetError>>>,
    /// The next global batch.
    next: usize,
    /// Samples so far, as the loader counts them.
    processed: usize,
}

impl<I, O> Iterator for ShardIterator<I, O> {
    type Item = Result<O, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        let source = &self.epoch.source;
        let count = source.counted(self.next);
        if let Some(step) = &source.step {
            step.note_batch(&source.batches.batch(self.next));
        }
        let loaded = match &mut self.workers {
            _ if count == 0 => None,
            None => self.epoch.load(self.next),
            Some(workers) => workers.take(self.next),
        }?;
        self.next += 1;
        self.processed += count;
        Some(loaded)
    }
}

impl<I, O> DataLoaderIterator<O> for ShardIterator<I, O> {
    fn progress(&self) -> Progress {
        Progress::new(self.processed, self.epoch.source.num_items(), Some("items".to_owned()))
    }
}

#[cfg(test)]
mod tests;
