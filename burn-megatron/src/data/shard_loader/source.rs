//! Where a loader's batches come from, and one pass over them.

use std::ops::Range;
use std::sync::Arc;

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::{Dataset, DatasetError};
use burn::tensor::Device;

use crate::data::global_batches::GlobalBatches;
use crate::random::CurrentStep;

/// A cut of each batch over ranks that load their own samples of it.
pub(super) trait Cut<O>: Send + Sync {
    /// Returns those of a batch's samples that this rank loads.
    fn own(&self, num_samples: usize) -> Range<usize>;

    /// Returns the batch of `num_samples` samples of which this rank has loaded its own.
    fn place(&self, loaded: O, num_samples: usize) -> O;
}

/// Where a loader's batches come from.
pub(super) struct Source<I, O> {
    pub(super) dataset: Arc<dyn Dataset<I>>,
    pub(super) batcher: Arc<dyn Batcher<I, O>>,
    pub(super) device: Device,
    pub(super) batches: GlobalBatches,
    pub(super) rank: usize,
    pub(super) cut: Option<Arc<dyn Cut<O>>>,
    pub(super) step: Option<CurrentStep>,
}

impl<I, O> Clone for Source<I, O> {
    fn clone(&self) -> Self {
        Self {
            dataset: self.dataset.clone(),
            batcher: self.batcher.clone(),
            device: self.device.clone(),
            batches: self.batches,
            rank: self.rank,
            cut: self.cut.clone(),
            step: self.step.clone(),
        }
    }
}

impl<I, O> Source<I, O> {
    /// The places of this rank's samples of a batch.
    pub(super) fn share(&self, batch: usize) -> Range<usize> {
        let share = self.batches.share(batch, self.rank);
        match &self.cut {
            None => share,
            Some(cut) => {
                let own = cut.own(share.len());
                share.start + own.start..share.start + own.end
            }
        }
    }

    /// Returns the samples that the loader counts of a batch: this rank's, or all where batches are placed.
    pub(super) fn counted(&self, batch: usize) -> usize {
        self.batches.share(batch, self.rank).len()
    }

    pub(super) fn num_items(&self) -> usize {
        self.batches.num_samples_of(self.rank)
    }
}

/// One pass over the samples.
pub(super) struct Epoch<I, O> {
    pub(super) source: Arc<Source<I, O>>,
    /// The number of the sample at each place; `None` if samples are not shuffled.
    pub(super) order: Option<Arc<[usize]>>,
}

impl<I, O> Clone for Epoch<I, O> {
    fn clone(&self) -> Self {
        Self {
            source: self.source.clone(),
            order: self.order.clone(),
        }
    }
}

impl<I, O> Epoch<I, O> {
    /// Loads this rank's share of a global batch; `None` if it has no sample.
    pub(super) fn load(&self, batch: usize) -> Option<Result<O, DatasetError>> {
        let Source { dataset, batcher, .. } = &*self.source;
        let places = self.source.share(batch);
        if places.is_empty() {
            return None;
        }
        let items = places.map(|place| {
            let number = self.order.as_ref().map_or(place, |order| order[place]);
            dataset.get(number)
        });
        let loaded = items.collect::<Result<Vec<I>, _>>();
        let loaded = loaded.map(|items| batcher.batch(items, &self.source.device));
        Some(loaded.map(|loaded| match &self.source.cut {
            Some(cut) => cut.place(loaded, self.source.counted(batch)),
            None => loaded,
        }))
    }
}
