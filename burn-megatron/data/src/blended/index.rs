//! `BlendIndex`: which sample of which data set each sample of a blend is.

use super::BlendSize;
use super::order::{MAX_DATASETS, Order};
use crate::index_cache::{ArrayLayout, IndexArray, IndexCache, IndexWriter};
use crate::samples::{SampleError, entry};
use crate::weights::normalized;

/// The order of a blend.
#[derive(Clone)]
pub(super) struct BlendIndex {
    num_datasets: usize,
    /// The data set of each sample.
    dataset_index: IndexArray<u16>,
    /// And which of its samples.
    sample_index: IndexArray<u32>,
}

impl BlendIndex {
    /// Makes the order of data sets with samples of these lengths and numbers, or maps it from a cache.
    pub(super) fn new(
        lengths: &[usize],
        available: &[u64],
        size: &BlendSize,
        cache: Option<&IndexCache>,
    ) -> Result<Self, SampleError> {
        check_datasets(lengths)?;
        let order = match size {
            BlendSize::Weighted { weights, num_samples } => {
                check_weights(weights, lengths.len())?;
                Order::weighted(normalized(weights), *num_samples)?
            }
            BlendSize::Everything => Order::everything(available)?,
        };
        let (dataset_index, sample_index) = match cache {
            None => {
                let size = order.num_samples();
                let (mut datasets, mut samples) = (Vec::with_capacity(size), Vec::with_capacity(size));
                order.build(available, |some_datasets, some_samples| {
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
                    order.build(available, |some_datasets, some_samples| {
                        samples.extend_from_slice(some_samples);
                        writer.write(some_datasets)
                    })?;
                    writer.end_array()?;
                    writer.write(&samples)?;
                    writer.end_array()
                };
                let file = cache.open_or_build("blend", &order.description(available), &layout, build)?;
                (file.array(0), file.array(1))
            }
        };
        Ok(Self {
            num_datasets: lengths.len(),
            dataset_index,
            sample_index,
        })
    }

    pub(super) fn num_samples(&self) -> u64 {
        self.dataset_index.len() as u64
    }

    /// Returns the data set of a sample of the blend, by its place, and which of its samples it is.
    pub(super) fn source(&self, index: u64) -> Result<(usize, u64), SampleError> {
        let dataset = usize::from(entry(&self.dataset_index, index)?);
        let sample = u64::from(entry(&self.sample_index, index)?);
        if dataset >= self.num_datasets {
            let place = format!("data set {dataset} of {}", self.num_datasets);
            return Err(SampleError::WrongIndex { index, place });
        }
        Ok((dataset, sample))
    }
}

fn check_datasets(lengths: &[usize]) -> Result<(), SampleError> {
    let count = lengths.len();
    if count == 0 || count > MAX_DATASETS {
        let rule = format!("from 1 to {MAX_DATASETS}");
        return Err(SampleError::setting("number of data sets of a blend", rule, count));
    }
    match lengths.iter().find(|&&length| length != lengths[0]) {
        None => Ok(()),
        Some(&other) => {
            let rule = format!("{}, as in the blend's first data set", lengths[0]);
            Err(SampleError::setting("sample length", rule, other))
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
