//! The data sets of a run: training, validation and test, of one prefix or blends of several.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::blended::{BlendSize, BlendedDataset, blend_sizes, dataset_sizes};
use crate::data_path::DataPath;
use crate::gpt_dataset::{GptDataset, GptDatasetConfig};
use crate::index_cache::IndexCache;
use crate::indexed_dataset::TokenDocuments;
use crate::samples::{SampleError, Samples};
use crate::split::{Split, SplitRatios};
use crate::weights::normalized;

/// Where training, validation and test come from.
#[derive(Debug, Clone, PartialEq)]
pub enum DataSource {
    /// Each data set is divided by `--split`.
    Divided {
        /// The data sets (`--data-path`).
        path: DataPath,
        /// How they are divided (`--split`).
        split: SplitRatios,
    },
    /// Each part has its own data sets (`--train-data-path`, `--valid-data-path`, `--test-data-path`), or none.
    Separate([Option<DataPath>; 3]),
}

impl DataSource {
    fn path(&self, split: Split) -> Option<&DataPath> {
        match self {
            Self::Divided { path, .. } => Some(path),
            Self::Separate(paths) => paths[split as usize].as_ref(),
        }
    }

    /// The documents of a data set that are for `split`.
    fn range(&self, split: Split, num_documents: usize) -> Option<Range<usize>> {
        match self {
            Self::Divided { split: ratios, .. } => ratios.range(split, num_documents),
            Self::Separate(_) => Some(0..num_documents),
        }
    }

    /// Whether a single prefix is a blend of one. Megatron-LM makes one of `--data-path 1 a`, but not of
    /// `--train-data-path 1 a`, and the samples of the two can differ.
    fn is_blend(&self, path: &DataPath) -> bool {
        path.prefixes.len() > 1 || (path.weights.is_some() && matches!(self, Self::Divided { .. }))
    }
}

/// What the data sets of a run are made of.
#[derive(Debug, Clone, PartialEq)]
pub struct BuildConfig {
    /// Where they come from.
    pub source: DataSource,
    /// Samples wanted for training, validation and test; of none with 0 a data set is made, `None` is one epoch.
    pub num_samples: [Option<u64>; 3],
    /// Sequence length, seed and what a sample is; the number of samples in it does not count.
    pub dataset: GptDatasetConfig,
    /// Whether the last sample of validation, that is not full, is left out.
    pub drop_last_partial_validation: bool,
    /// Whether validation has a data set for each prefix too, with all the samples wanted for validation.
    pub validation_by_prefix: bool,
    /// Folder of the indices (`--data-cache-path`); the folder `cache` below each prefix if none is named.
    pub cache_path: Option<PathBuf>,
}

/// The data sets of a run.
#[derive(Clone, Default)]
pub struct RunData {
    /// Training, validation and test, if there are: a part may have a share of none of the documents.
    pub splits: [Option<Arc<dyn Samples>>; 3],
    /// Validation of each prefix, if asked for and if there are several.
    pub validation_by_prefix: Vec<(String, Arc<dyn Samples>)>,
}

impl RunData {
    /// Makes the data sets, on all cores, or maps their indices from the cache. `open` opens the documents of a prefix;
    /// Megatron-LM's documents are the sequences of its `.idx`.
    ///
    /// Not to be called on a thread of rayon's: another data set of the same key could be started on it, which then
    /// would wait for itself.
    ///
    /// # Errors
    /// As `open`, [`GptDataset::with_cache`] and [`BlendedDataset::new`]; when weights are given without a number of
    /// samples, or the data sets of a blend without weights have fewer samples than are wanted.
    ///
    /// # Reference
    /// Megatron-LM's `BlendedMegatronDatasetBuilder`.
    pub fn build<E: From<SampleError>>(
        config: &BuildConfig,
        mut open: impl FnMut(&str) -> Result<Arc<dyn TokenDocuments>, E>,
    ) -> Result<Self, E> {
        let mut documents = BTreeMap::new();
        for split in Split::ALL {
            let is_wanted = config.num_samples[split as usize] != Some(0);
            let paths = config.source.path(split).filter(|_| is_wanted);
            for prefix in paths.iter().flat_map(|path| &path.prefixes) {
                if !documents.contains_key(prefix) {
                    documents.insert(prefix.clone(), open(prefix)?);
                }
            }
        }
        Ok(Builder { config, documents }.build()?)
    }
}

struct Builder<'a> {
    config: &'a BuildConfig,
    documents: BTreeMap<String, Arc<dyn TokenDocuments>>,
}

/// A data set of one prefix that is to be made.
struct Job<'a> {
    split: Split,
    prefix: &'a str,
    range: Range<usize>,
    num_samples: Option<u64>,
}

impl<'a> Builder<'a> {
    fn build(&self) -> Result<RunData, SampleError> {
        let mut plans = vec![];
        for split in Split::ALL {
            plans.push(self.jobs(split)?);
        }
        let by_prefix = self.jobs_by_prefix();
        let jobs: Vec<&Job> = plans.iter().flatten().flatten().chain(&by_prefix).collect();
        let mut made = self.make(&jobs)?.into_iter();
        let mut data = RunData::default();
        for (split, jobs) in Split::ALL.into_iter().zip(&plans) {
            let Some(jobs) = jobs else { continue };
            let datasets: Vec<_> = made.by_ref().take(jobs.len()).collect();
            data.splits[split as usize] = Some(self.join(split, datasets)?);
        }
        data.validation_by_prefix = by_prefix.iter().map(|job| job.prefix.to_owned()).zip(made).collect();
        Ok(data)
    }

    /// The data sets that `split` is made of; `None` if it is not to be made.
    fn jobs(&self, split: Split) -> Result<Option<Vec<Job<'_>>>, SampleError> {
        let wanted = self.config.num_samples[split as usize];
        let Some(path) = self.config.source.path(split).filter(|_| wanted != Some(0)) else {
            return Ok(None);
        };
        let has_share = |prefix: &String| self.range(split, prefix).is_some();
        let has_documents = |prefix: &String| self.range(split, prefix).is_some_and(|range| !range.is_empty());
        // A data set of few documents has none to set aside, which is no reason not to train.
        let is_needed = split == Split::Train || path.prefixes.iter().any(has_documents);
        if !is_needed || !path.prefixes.iter().all(has_share) {
            return Ok(None);
        }
        let sizes = match (&path.weights, wanted) {
            _ if !self.config.source.is_blend(path) => vec![wanted],
            (None, _) => vec![None; path.prefixes.len()],
            (Some(weights), Some(wanted)) => {
                let sizes = dataset_sizes(&normalized(weights), wanted);
                sizes.into_iter().map(Some).collect()
            }
            (Some(_), None) => {
                let rule = "given where data sets have weights, which are shares of it";
                return Err(SampleError::setting("number of samples", rule, 0u64));
            }
        };
        let jobs = path.prefixes.iter().zip(sizes);
        let jobs = jobs.map(|(prefix, num_samples)| self.job(split, prefix, num_samples));
        Ok(jobs.collect())
    }

    /// The data sets of validation one by one.
    fn jobs_by_prefix(&self) -> Vec<Job<'_>> {
        let wanted = self.config.num_samples[Split::Validation as usize];
        let path = self.config.source.path(Split::Validation);
        let Some(path) = path.filter(|path| path.prefixes.len() > 1 && wanted != Some(0)) else {
            return vec![];
        };
        if !self.config.validation_by_prefix {
            return vec![];
        }
        let prefixes = path.prefixes.iter();
        prefixes
            .filter_map(|prefix| self.job(Split::Validation, prefix, wanted))
            .collect()
    }

    fn job<'b>(&'b self, split: Split, prefix: &'b str, num_samples: Option<u64>) -> Option<Job<'b>> {
        let range = self
            .config
            .source
            .range(split, self.documents[prefix].num_documents())?;
        Some(Job {
            split,
            prefix,
            range,
            num_samples,
        })
    }

    /// The documents of a prefix that are for `split`; `None` if its share of all data sets is 0.
    fn range(&self, split: Split, prefix: &str) -> Option<Range<usize>> {
        self.config.source.range(split, self.documents[prefix].num_documents())
    }

    /// Makes data sets, several at a time; each is made on all cores, but not all of the time.
    fn make(&self, jobs: &[&Job]) -> Result<Vec<Arc<dyn Samples>>, SampleError> {
        let next = AtomicUsize::new(0);
        let made = Mutex::new(BTreeMap::new());
        let work = || loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(number) else { break };
            let dataset = self.make_one(job);
            made.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(number, dataset);
        };
        let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        thread::scope(|scope| {
            for _ in 0..threads.min(jobs.len()) {
                scope.spawn(work);
            }
        });
        made.into_inner()
            .unwrap_or_else(PoisonError::into_inner)
            .into_values()
            .collect()
    }

    fn make_one(&self, job: &Job) -> Result<Arc<dyn Samples>, SampleError> {
        let is_validation = job.split == Split::Validation;
        let config = GptDatasetConfig {
            num_samples: job.num_samples,
            drop_last_partial: !is_validation || self.config.drop_last_partial_validation,
            ..self.config.dataset.clone()
        };
        let documents = self.documents[job.prefix].clone();
        let dataset = GptDataset::with_cache(&config, documents, job.range.clone(), &self.cache(job.prefix));
        match dataset {
            Ok(dataset) => Ok(Arc::new(dataset)),
            Err(source) => Err(SampleError::Dataset {
                prefix: job.prefix.to_owned(),
                split: job.split.name(),
                source: Box::new(source),
            }),
        }
    }

    /// Blends the data sets of `split`, if it is a blend.
    fn join(&self, split: Split, mut datasets: Vec<Arc<dyn Samples>>) -> Result<Arc<dyn Samples>, SampleError> {
        let path = self
            .config
            .source
            .path(split)
            .expect("a part with data sets has their prefixes");
        if !self.config.source.is_blend(path) {
            return Ok(datasets.swap_remove(0));
        }
        let size = match (&path.weights, self.config.num_samples[split as usize]) {
            (Some(weights), Some(wanted)) => {
                let weights = normalized(weights);
                // Rounded up one by one: slightly more than is wanted.
                let num_samples = blend_sizes(&weights, wanted).iter().sum();
                BlendSize::Weighted { weights, num_samples }
            }
            (_, wanted) => {
                let available: u64 = datasets.iter().map(|dataset| dataset.num_samples()).sum();
                match wanted {
                    None => BlendSize::Everything,
                    Some(num_samples) if num_samples > available => {
                        let rule = format!(
                            "at most {available}, those of one epoch of all {} data sets, as they have no weights; \
                             with weights they are repeated",
                            split.name()
                        );
                        return Err(SampleError::setting("number of samples", rule, num_samples));
                    }
                    Some(num_samples) => BlendSize::Weighted {
                        weights: datasets.iter().map(|dataset| dataset.num_samples() as f64).collect(),
                        num_samples,
                    },
                }
            }
        };
        let cache = self.cache(&path.prefixes[0]);
        Ok(Arc::new(BlendedDataset::new(datasets, &size, Some(&cache))?))
    }

    fn cache(&self, prefix: &str) -> IndexCache {
        match &self.config.cache_path {
            Some(path) => IndexCache::new(path),
            None => IndexCache::next_to(Path::new(prefix)),
        }
    }
}

#[cfg(test)]
mod tests;
