//! `BlendedDataset`: samples of several data sets, in proportion to weights.

mod index;
mod order;
mod sample_set;

use std::fmt;
use std::sync::Arc;

use crate::index_cache::IndexCache;
use crate::samples::{SampleError, Samples};
use index::BlendIndex;

pub use order::MAX_DATASETS;
pub use sample_set::BlendedSampleSet;

/// How many samples more than a blend should need are made of each of its data sets: a share of them.
const SURPLUS: f64 = 0.005;

/// Returns how many samples a blend of `num_samples` samples takes of each data set, by normalised weights:
/// `ceil(N·w)`.
pub fn blend_sizes(weights: &[f64], num_samples: u64) -> Vec<u64> {
    let size = |weight: &f64| (num_samples as f64 * weight).ceil() as u64;
    weights.iter().map(size).collect()
}

/// Returns how many samples each data set of the blend is asked for: `ceil(ceil(N·w) · 1.005)`.
pub fn dataset_sizes(weights: &[f64], num_samples: u64) -> Vec<u64> {
    let size = |size: u64| (size as f64 * (1.0 + SURPLUS)).ceil() as u64;
    blend_sizes(weights, num_samples).into_iter().map(size).collect()
}

/// How much a blend takes of its data sets.
#[derive(Debug, Clone, PartialEq)]
pub enum BlendSize {
    /// That many samples, in proportion to weights above 0, of which the ratios count.
    Weighted {
        /// A weight for each data set.
        weights: Vec<f64>,
        /// Samples of the blend.
        num_samples: u64,
    },
    /// All samples of all data sets, each spread over the whole blend.
    Everything,
}

/// Samples of several data sets. The next is of the data set that is furthest below its share: the one with the
/// largest `weight · max(i, 1) − count`, i the samples of the blend so far and count those of the data set, the first
/// of several. A data set's own samples come in their order.
///
/// Two arrays hold the order: 6 bytes per sample.
///
/// # Reference
/// Megatron-LM's `BlendedDataset`, whose sample order this reproduces.
#[derive(Clone)]
pub struct BlendedDataset {
    datasets: Vec<Arc<dyn Samples>>,
    index: BlendIndex,
}

impl BlendedDataset {
    /// Returns the blend, whose order this process makes and keeps, or maps from a cache.
    ///
    /// # Errors
    /// There is no data set or more than [`MAX_DATASETS`], their samples have different lengths, there is not one
    /// weight for each or it is not a finite number above 0, there are more samples than 32 bits count, the blend
    /// takes more samples of a data set than there are; as of the cache.
    pub fn new(
        datasets: Vec<Arc<dyn Samples>>,
        size: &BlendSize,
        cache: Option<&IndexCache>,
    ) -> Result<Self, SampleError> {
        let lengths: Vec<usize> = datasets.iter().map(|dataset| dataset.sample_length()).collect();
        let available: Vec<u64> = datasets.iter().map(|dataset| dataset.num_samples()).collect();
        let index = BlendIndex::new(&lengths, &available, size, cache)?;
        Ok(Self { datasets, index })
    }

    /// Returns the data set of a sample of the blend, by its place, and which of its samples it is.
    ///
    /// # Errors
    /// There is no such sample.
    pub fn source(&self, index: u64) -> Result<(usize, u64), SampleError> {
        self.index.source(index)
    }

    /// Returns the data sets.
    pub fn datasets(&self) -> &[Arc<dyn Samples>] {
        &self.datasets
    }
}

impl Samples for BlendedDataset {
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

    fn sample_length(&self) -> usize {
        self.datasets[0].sample_length()
    }

    fn read_sample(&self, index: u64, tokens: &mut Vec<u32>) -> Result<usize, SampleError> {
        let (dataset, sample) = self.source(index)?;
        self.datasets[dataset].read_sample(sample, tokens)
    }
}

impl fmt::Debug for BlendedDataset {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("BlendedDataset");
        debug.field("datasets", &self.datasets.len());
        debug.field("num_samples", &self.num_samples()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
