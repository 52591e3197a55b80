//! `Kind`: what differs between data sets of GPT, BERT and T5 when they are made.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use super::BuildConfig;
use crate::bert_dataset::{BertDataset, BertDatasetConfig, BertSample};
use crate::blended::{BlendSize, BlendedDataset, BlendedSampleSet};
use crate::gpt_dataset::{GptDataset, GptDatasetConfig};
use crate::index_cache::IndexCache;
use crate::indexed_dataset::{SentenceDocuments, TokenDocuments};
use crate::samples::{SampleError, SampleSet, Samples};
use crate::split::Split;
use crate::t5_dataset::{T5Dataset, T5DatasetConfig, T5Sample};
use crate::tokenizer::Tokenizer;

/// A data set of one prefix that is to be made.
pub(super) struct Job<'a> {
    pub(super) split: Split,
    pub(super) prefix: &'a str,
    pub(super) range: Range<usize>,
    pub(super) num_samples: Option<u64>,
}

/// A kind of data sets.
pub(super) trait Kind: Sync {
    /// What a data set of one prefix is made of.
    type Config: Sync;
    /// What is opened of a prefix.
    type Documents: ?Sized + Send + Sync;
    /// What is made of it.
    type Dataset: ?Sized + Send + Sync;

    /// Returns the number of documents that are divided into training, validation and test.
    fn num_documents(documents: &Self::Documents) -> usize;

    /// Makes the data set of a prefix.
    fn make(
        &self,
        config: &BuildConfig<Self::Config>,
        documents: Arc<Self::Documents>,
        job: &Job,
        cache: &IndexCache,
    ) -> Result<Arc<Self::Dataset>, SampleError>;

    /// Returns the number of samples of a data set.
    fn num_samples(dataset: &Self::Dataset) -> u64;

    /// Makes a blend of data sets.
    fn blend(
        datasets: Vec<Arc<Self::Dataset>>,
        size: &BlendSize,
        cache: &IndexCache,
    ) -> Result<Arc<Self::Dataset>, SampleError>;
}

/// Rows of tokens.
pub(super) struct GptKind;

/// Masked samples of documents of sentences.
pub(super) struct MaskedKind<Config> {
    tokenizer: Arc<dyn Tokenizer>,
    config: PhantomData<fn() -> Config>,
}

impl<Config> MaskedKind<Config> {
    pub(super) fn new(tokenizer: &Arc<dyn Tokenizer>) -> Self {
        Self {
            tokenizer: tokenizer.clone(),
            config: PhantomData,
        }
    }
}

/// What a data set of masked samples is made of.
pub(super) trait MaskedConfig: Sync {
    type Sample: 'static;

    /// Makes the data set of the documents of a job.
    fn dataset(
        &self,
        documents: Arc<dyn SentenceDocuments>,
        tokenizer: Arc<dyn Tokenizer>,
        job: &Job,
        cache: &IndexCache,
    ) -> Result<Arc<dyn SampleSet<Sample = Self::Sample>>, SampleError>;
}

impl Kind for GptKind {
    type Config = GptDatasetConfig;
    type Documents = dyn TokenDocuments;
    type Dataset = dyn Samples;

    fn num_documents(documents: &Self::Documents) -> usize {
        documents.num_documents()
    }

    fn make(
        &self,
        config: &BuildConfig,
        documents: Arc<Self::Documents>,
        job: &Job,
        cache: &IndexCache,
    ) -> Result<Arc<Self::Dataset>, SampleError> {
        let is_validation = job.split == Split::Validation;
        let dataset = GptDatasetConfig {
            num_samples: job.num_samples,
            drop_last_partial: !is_validation || config.drop_last_partial_validation,
            ..config.dataset.clone()
        };
        let range = job.range.clone();
        Ok(Arc::new(GptDataset::with_cache(&dataset, documents, range, cache)?))
    }

    fn num_samples(dataset: &Self::Dataset) -> u64 {
        dataset.num_samples()
    }

    fn blend(
        datasets: Vec<Arc<Self::Dataset>>,
        size: &BlendSize,
        cache: &IndexCache,
    ) -> Result<Arc<Self::Dataset>, SampleError> {
        Ok(Arc::new(BlendedDataset::new(datasets, size, Some(cache))?))
    }
}

impl<Config: MaskedConfig> Kind for MaskedKind<Config> {
    type Config = Config;
    type Documents = dyn SentenceDocuments;
    type Dataset = dyn SampleSet<Sample = Config::Sample>;

    fn num_documents(documents: &Self::Documents) -> usize {
        documents.num_whole_documents()
    }

    fn make(
        &self,
        config: &BuildConfig<Config>,
        documents: Arc<Self::Documents>,
        job: &Job,
        cache: &IndexCache,
    ) -> Result<Arc<Self::Dataset>, SampleError> {
        config.dataset.dataset(documents, self.tokenizer.clone(), job, cache)
    }

    fn num_samples(dataset: &Self::Dataset) -> u64 {
        dataset.num_samples()
    }

    fn blend(
        datasets: Vec<Arc<Self::Dataset>>,
        size: &BlendSize,
        cache: &IndexCache,
    ) -> Result<Arc<Self::Dataset>, SampleError> {
        Ok(Arc::new(BlendedSampleSet::new(datasets, size, Some(cache))?))
    }
}

/// Makes data sets of masked samples by their configurations.
macro_rules! masked_configs {
    ($($config:ident: $dataset:ident of $sample:ident),*) => {
        $(impl MaskedConfig for $config {
            type Sample = $sample;

            fn dataset(
                &self,
                documents: Arc<dyn SentenceDocuments>,
                tokenizer: Arc<dyn Tokenizer>,
                job: &Job,
                cache: &IndexCache,
            ) -> Result<Arc<dyn SampleSet<Sample = $sample>>, SampleError> {
                let mut config = self.clone();
                config.samples.num_samples = job.num_samples;
                let dataset = $dataset::new(&config, documents, job.range.clone(), tokenizer, Some(cache))?;
                Ok(Arc::new(dataset))
            }
        })*
    };
}

masked_configs!(BertDatasetConfig: BertDataset of BertSample, T5DatasetConfig: T5Dataset of T5Sample);
