//! `BlendedSampleSet`: a blend of data sets whose samples have a type of their own.

use std::fmt;
use std::sync::Arc;

use super::BlendSize;
use super::index::BlendIndex;
use crate::index_cache::IndexCache;
use crate::samples::{SampleError, SampleSet};

/// Samples of several data sets of BERT's, T5's or any other type, in the order of a
/// [`BlendedDataset`](super::BlendedDataset).
pub struct BlendedSampleSet<S> {
    datasets: Vec<Arc<dyn SampleSet<Sample = S>>>,
    index: BlendIndex,
}

impl<S> BlendedSampleSet<S> {
    /// Returns the blend, whose order this process makes and keeps, or maps from a cache.
    ///
    /// # Errors
    /// Those of [`BlendedDataset::new`](super::BlendedDataset::new).
    pub fn new(
        datasets: Vec<Arc<dyn SampleSet<Sample = S>>>,
        size: &BlendSize,
        cache: Option<&IndexCache>,
    ) -> Result<Self, SampleError> {
        let lengths: Vec<usize> = datasets.iter().map(|dataset| dataset.seq_length()).collect();
        let available: Vec<u64> = datasets.iter().map(|dataset| dataset.num_samples()).collect();
        let index = BlendIndex::new(&lengths, &available, size, cache)?;
        Ok(Self { datasets, index })
    }
}

impl<S> SampleSet for BlendedSampleSet<S> {
    type Sample = S;

    fn num_samples(&self) -> u64 {
        self.index.num_samples()
    }

    /// Returns the orders of the data sets: which of them is next depends on their weights alone.
    fn order(&self) -> Vec<u64> {
        self.datasets.iter().flat_map(|dataset| dataset.order()).collect()
    }

    fn seq_length(&self) -> usize {
        self.datasets[0].seq_length()
    }

    fn read(&self, index: u64) -> Result<S, SampleError> {
        let (dataset, sample) = self.index.source(index)?;
        self.datasets[dataset].read(sample)
    }
}

impl<S> fmt::Debug for BlendedSampleSet<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("BlendedSampleSet");
        debug.field("datasets", &self.datasets.len());
        debug.field("num_samples", &self.num_samples()).finish_non_exhaustive()
    }
}
