//! `Builder`: which data sets a run has, of which documents, and how they are blended, for samples of any kind.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;

use super::kind::{Job, Kind};
use super::{BuildConfig, RunData};
use crate::blended::{BlendSize, blend_sizes, dataset_sizes};
use crate::index_cache::IndexCache;
use crate::samples::SampleError;
use crate::split::Split;
use crate::weights::normalized;

/// Makes the data sets of a run. `open` opens the documents of a prefix, once.
pub(super) fn build<K: Kind, E: From<SampleError>>(
    config: &BuildConfig<K::Config>,
    kind: &K,
    mut open: impl FnMut(&str) -> Result<Arc<K::Documents>, E>,
) -> Result<RunData<K::Dataset>, E> {
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
    let builder = Builder {
        config,
        kind,
        documents,
    };
    Ok(builder.build()?)
}

struct Builder<'a, K: Kind> {
    config: &'a BuildConfig<K::Config>,
    kind: &'a K,
    documents: BTreeMap<String, Arc<K::Documents>>,
}

impl<K: Kind> Builder<'_, K> {
    fn build(&self) -> Result<RunData<K::Dataset>, SampleError> {
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
        Some(Job {
            split,
            prefix,
            range: self.range(split, prefix)?,
            num_samples,
        })
    }

    /// The documents of a prefix that are for `split`; `None` if its share of all data sets is 0.
    fn range(&self, split: Split, prefix: &str) -> Option<Range<usize>> {
        self.config
            .source
            .range(split, K::num_documents(&self.documents[prefix]))
    }

    /// Makes data sets, several at a time; each is made on all cores, but not all of the time.
    fn make(&self, jobs: &[&Job]) -> Result<Vec<Arc<K::Dataset>>, SampleError> {
        let next = AtomicUsize::new(0);
        let made = Mutex::new(BTreeMap::new());
        let work = || loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(number) else { break };
            let dataset = self.make_one(job);
            made.lock().insert(number, dataset);
        };
        let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        thread::scope(|scope| {
            for _ in 0..threads.min(jobs.len()) {
                scope.spawn(work);
            }
        });
        made.into_inner().into_values().collect()
    }

    fn make_one(&self, job: &Job) -> Result<Arc<K::Dataset>, SampleError> {
        let documents = self.documents[job.prefix].clone();
        let dataset = self.kind.make(self.config, documents, job, &self.cache(job.prefix));
        dataset.map_err(|source| SampleError::Dataset {
            prefix: job.prefix.to_owned(),
            split: job.split.name(),
            source: Box::new(source),
        })
    }

    /// Blends the data sets of `split`, if it is a blend.
    fn join(&self, split: Split, mut datasets: Vec<Arc<K::Dataset>>) -> Result<Arc<K::Dataset>, SampleError> {
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
                let available: u64 = datasets.iter().map(|dataset| K::num_samples(dataset)).sum();
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
                        weights: datasets.iter().map(|dataset| K::num_samples(dataset) as f64).collect(),
                        num_samples,
                    },
                }
            }
        };
        let cache = self.cache(&path.prefixes[0]);
        K::blend(datasets, &size, &cache)
    }

    fn cache(&self, prefix: &str) -> IndexCache {
        match &self.config.cache_path {
            Some(path) => IndexCache::new(path),
            None => IndexCache::next_to(Path::new(prefix)),
        }
    }
}
