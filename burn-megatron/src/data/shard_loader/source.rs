//! Where a loader's batches come from, and one pass over them.

use std::ops::Range;
use std::sync::Arc;

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::Dataset;
use burn::tensor::backend::Backend;

use super::placing::Placing;
use crate::data::global_batches::GlobalBatches;
use crate::random::CurrentStep;

/// Where a loader's batches come from.
pub(super) struct Source<B: Backend, I, O> {
    pub(super) dataset: Arc<dyn Dataset<I>>,
    pub(super) batcher: Arc<dyn Batcher<B, I, O>>,
    pub(super) device: B::Device,
    pub(super) batches: GlobalBatches,
    pub(super) rank: usize,
    pub(super) placing: Option<Placing<O>>,
    pub(super) step: Option<CurrentStep>,
}

impl<B: Backend, I, O> Clone for Source<B, I, O> {
    fn clone(&self) -> Self {
        Self {
            dataset: self.dataset.clone(),
            batcher: self.batcher.clone(),
            device: self.device.clone(),
            batches: self.batches,
            rank: self.rank,
            placing: self.placing.clone(),
            step: self.step.clone(),
        }
    }
}

impl<B: Backend, I, O> Source<B, I, O> {
    /// The places of this rank's samples of a batch.
    pub(super) fn share(&self, batch: usize) -> Range<usize> {
        let share = self.batches.share(batch, self.rank);
        match &self.placing {
            None => share,
            Some(placing) => {
                let own = placing.share(share.len()).range();
                share.start + own.start..share.start + own.end
            }
        }
    }

    /// What the loader counts of a batch: this rank's samples, or all where batches are placed.
    pub(super) fn counted(&self, batch: usize) -> usize {
        self.batches.share(batch, self.rank).len()
    }

    pub(super) fn num_items(&self) -> usize {
        self.batches.num_samples_of(self.rank)
    }
}

/// One pass over the samples.
pub(super) struct Epoch<B: Backend, I, O> {
    pub(super) source: Arc<Source<B, I, O>>,
    /// The number of the sample at each place; `None` if samples are not shuffled.
    pub(super) order: Option<Arc<[usize]>>,
}

impl<B: Backend, I, O> Clone for Epoch<B, I, O> {
    fn clone(&self) -> Self {
        Self {
            source: self.source.clone(),
            order: self.order.clone(),
        }
    }
}

impl<B: Backend, I, O> Epoch<B, I, O> {
    /// Loads this rank's share of a global batch; `None` if it has no sample.
    ///
    /// # Panics
    /// When the dataset lacks a sample below its length.
    pub(super) fn load(&self, batch: usize) -> Option<O> {
        let Source { dataset, batcher, .. } = &*self.source;
        let places = self.source.share(batch);
        if places.is_empty() {
            return None;
        }
        let items = places.map(|place| {
            let number = self.order.as_ref().map_or(place, |order| order[place]);
            let item = dataset.get(number);
            item.unwrap_or_else(|| panic!("the dataset has no sample {number}, but a length of {}", dataset.len()))
        });
        let loaded = batcher.batch(items.collect(), &self.source.device);
        Some(match &self.source.placing {
            Some(placing) => placing.place(loaded, self.source.counted(batch)),
            None => loaded,
        })
    }
}
