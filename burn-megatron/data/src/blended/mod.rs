//! `BlendedDataset`: samples of several data sets, in proportion to weights.

mod order;

use std::fmt;
use std::sync::Arc;

use crate::index_cache::{ArrayLayout, IndexArray, IndexCache, IndexWriter};
use crate::samples::{SampleError, Samples};
use crate::weights::normalized;
use order::Order;

pub use order::MAX_DATASETS;

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
    /// The data set of each sample.
    dataset_index: IndexArray<u16>,
    /// And which of its samples.
    sample_index: IndexArray<u32>,
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
        check_datasets(&datasets)?;
        let available: Vec<u64> = datasets.iter().map(|dataset| dataset.num_samples()).collect();
        let order = match size {
            BlendSize::Weighted { weights, num_samples } => {
                check_weights(weights, datasets.len())?;
                Order::weighted(normalized(weights), *num_samples)?
            }
            BlendSize::Everything => Order::everything(&available)?,
        };
        let (dataset_index, sample_index) = match cache {
            None => {
                let size = order.num_samples();
                let (mut datasets, mut samples) = (Vec::with_capacity(size), Vec::with_capacity(size));
                order.build(&available, |some_datasets, some_samples| {
                    datasets.extend_from_slice(some_datasets);
                    samples.extend_from_slice(some_samples);
                    Ok(())
                })?;
                (IndexArray::Owned(datasets), IndexArray::Owned(samples))
            }
            Some(cache) => {
                let layout = [
                    ArrayLayout::of::<u16>(order.num_samples()),
                    ArrayLayout::of::<u32>(order.num_samples()),
                ];
                let build = |writer: &mut IndexWriter| {
                    let mut samples = Vec::with_capacity(order.num_samples());
                    order.build(&available, |some_datasets, some_samples| {
                        samples.extend_from_slice(some_samples);
                        writer.write(some_datasets)
                    })?;
                    writer.end_array()?;
                    writer.write(&samples)?;
                    writer.end_array()
                };
                let file = cache.open_or_build("blend", &order.description(&available), &layout, build)?;
                (file.array(0), file.array(1))
            }
        };
        Ok(Self {
            datasets,
            dataset_index,
            sample_index,
        })
    }

    /// Returns the data set of a sample of the blend, by its place, and which of its samples it is.
    ///
    /// # Errors
    /// There is no such sample.
    pub fn source(&self, index: u64) -> Result<(usize, u64), SampleError> {
        let place = usize::try_from(index).ok();
        let source = place.and_then(|place| Some((*self.dataset_index.get(place)?, *self.sample_index.get(place)?)));
        let (dataset, sample) = source.ok_or(SampleError::SampleOutOfRange {
            index,
            num_samples: self.num_samples(),
        })?;
        Ok((usize::from(dataset), u64::from(sample)))
    }

    /// Returns the data sets.
    pub fn datasets(&self) -> &[Arc<dyn Samples>] {
        &self.datasets
    }
}

impl Samples for BlendedDataset {
    fn num_samples(&self) -> u64 {
        self.dataset_index.len() as u64
    }

    fn seq_length(&self) -> usize {
        self.datasets[0].seq_length()
    }

    fn sample_length(&self) -> usize {
        self.datasets[0].sample_length()
    }

    fn read_sample(&self, index: u64, tokens: &mut Vec<u32>) -> Result<usize, SampleError> {
        let (dataset, sample) = self.source(index)?;
        let source = self.datasets.get(dataset).ok_or_else(|| SampleError::WrongIndex {
            index,
            place: format!("data set {dataset} of {}", self.datasets.len()),
        })?;
        source.read_sample(sample, tokens)
    }
}

impl fmt::Debug for BlendedDataset {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("BlendedDataset");
        debug.field("datasets", &self.datasets.len());
        debug.field("num_samples", &self.num_samples()).finish_non_exhaustive()
    }
}

fn check_datasets(datasets: &[Arc<dyn Samples>]) -> Result<(), SampleError> {
    let count = datasets.len();
    if count == 0 || count > MAX_DATASETS {
        let rule = format!("from 1 to {MAX_DATASETS}");
        return Err(SampleError::setting("number of data sets of a blend", rule, count));
    }
    let length = datasets[0].sample_length();
    match datasets.iter().find(|dataset| dataset.sample_length() != length) {
        None => Ok(()),
        Some(other) => {
            let rule = format!("{length}, as in the blend's first data set");
            Err(SampleError::setting("sample length", rule, other.sample_length()))
        }
    }
}

fn check_weights(weights: &[f64], num_datasets: usize) -> Result<(), SampleError> {
    if weights.len() != num_datasets {
        let rule = format!("{num_datasets}, as that of data sets");
        return Err(SampleError::setting("number of weights", rule, weights.len()));
    }
    let is_weight = |weight: f64| weight.is_finite() && weight > 0.0;
    match weights.iter().position(|&weight| !is_weight(weight)) {
        None if weights.iter().sum::<f64>().is_finite() => Ok(()),
        wrong => {
            let token = wrong.map_or_else(|| format!("{weights:?}"), |wrong| weights[wrong].to_string());
            Err(SampleError::DataPath {
                token,
                place: 2 * wrong.unwrap_or_default() + 1,
                problem: "is not a finite weight above 0",
            })
        }
    }
}

#[cfg(test)]
mod tests;
