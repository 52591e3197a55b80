//! The data sets of a run: training, validation and test, of one prefix or blends of several.

mod builder;
mod kind;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use crate::bert_dataset::{BertDatasetConfig, BertSample};
use crate::data_path::DataPath;
use crate::gpt_dataset::GptDatasetConfig;
use crate::indexed_dataset::{SentenceDocuments, TokenDocuments};
use crate::samples::{SampleError, SampleSet, Samples};
use crate::split::{Split, SplitRatios};
use crate::t5_dataset::{T5DatasetConfig, T5Sample};
use crate::tokenizer::Tokenizer;
use kind::{GptKind, MaskedKind};

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
pub struct BuildConfig<Dataset = GptDatasetConfig> {
    /// Where they come from.
    pub source: DataSource,
    /// Samples wanted for training, validation and test; of none with 0 a data set is made, `None` is one epoch.
    pub num_samples: [Option<u64>; 3],
    /// Sequence length, seed and what a sample is; the number of samples in it does not count.
    pub dataset: Dataset,
    /// Whether the last sample of validation, that is not full, is left out; for GPT's alone, others have none.
    pub drop_last_partial_validation: bool,
    /// Whether validation has a data set for each prefix too, with all the samples wanted for validation.
    pub validation_by_prefix: bool,
    /// Folder of the indices (`--data-cache-path`); the folder `cache` below each prefix if none is named.
    pub cache_path: Option<PathBuf>,
}

/// The data sets of a run, of samples of GPT, BERT or T5.
pub struct RunData<Dataset: ?Sized = dyn Samples> {
    /// Training, validation and test, if there are: a part may have a share of none of the documents.
    pub splits: [Option<Arc<Dataset>>; 3],
    /// Validation of each prefix, if asked for and if there are several.
    pub validation_by_prefix: Vec<(String, Arc<Dataset>)>,
}

impl<Dataset: ?Sized> Default for RunData<Dataset> {
    fn default() -> Self {
        Self {
            splits: [None, None, None],
            validation_by_prefix: vec![],
        }
    }
}

impl<Dataset: ?Sized> Clone for RunData<Dataset> {
    fn clone(&self) -> Self {
        Self {
            splits: self.splits.clone(),
            validation_by_prefix: self.validation_by_prefix.clone(),
        }
    }
}

impl<Dataset: ?Sized> RunData<Dataset> {
    /// Returns what `make` makes of each data set.
    pub fn map<Other: ?Sized>(self, make: impl Fn(Arc<Dataset>) -> Arc<Other>) -> RunData<Other> {
        let by_prefix = self.validation_by_prefix.into_iter();
        RunData {
            splits: self.splits.map(|dataset| dataset.map(&make)),
            validation_by_prefix: by_prefix.map(|(name, dataset)| (name, make(dataset))).collect(),
        }
    }
}

impl RunData {
    /// Makes the data sets, on all cores, or maps their indices from the cache. `open` opens the documents of a prefix;
    /// Megatron-LM's documents are the sequences of its `.idx`.
    ///
    /// Not to be called on a thread of rayon's: another data set of the same key could be started on it, which then
    /// would wait for itself.
    ///
    /// # Errors
    /// As `open`, [`GptDataset::with_cache`](crate::gpt_dataset::GptDataset::with_cache) and
    /// [`BlendedDataset::new`](crate::blended::BlendedDataset::new); when weights are given without a number of
    /// samples, or the data sets of a blend without weights have fewer samples than are wanted.
    ///
    /// # Reference
    /// Megatron-LM's `BlendedMegatronDatasetBuilder`.
    pub fn build<E: From<SampleError>>(
        config: &BuildConfig,
        open: impl FnMut(&str) -> Result<Arc<dyn TokenDocuments>, E>,
    ) -> Result<Self, E> {
        builder::build(config, &GptKind, open)
    }
}

impl RunData<dyn SampleSet<Sample = BertSample>> {
    /// Makes the data sets of BERT as [`RunData::build`] does GPT's. `open` opens the documents of a prefix, which have
    /// several sentences each and are what is divided into training, validation and test.
    ///
    /// # Errors
    /// As `open`, [`BertDataset::new`](crate::bert_dataset::BertDataset::new) and [`RunData::build`].
    pub fn build_bert<E: From<SampleError>>(
        config: &BuildConfig<BertDatasetConfig>,
        tokenizer: &Arc<dyn Tokenizer>,
        open: impl FnMut(&str) -> Result<Arc<dyn SentenceDocuments>, E>,
    ) -> Result<Self, E> {
        builder::build(config, &MaskedKind::new(tokenizer), open)
    }
}

impl RunData<dyn SampleSet<Sample = T5Sample>> {
    /// Makes the data sets of T5, as [`RunData::build_bert`] does BERT's.
    ///
    /// # Errors
    /// As `open`, [`T5Dataset::new`](crate::t5_dataset::T5Dataset::new) and [`RunData::build`].
    pub fn build_t5<E: From<SampleError>>(
        config: &BuildConfig<T5DatasetConfig>,
        tokenizer: &Arc<dyn Tokenizer>,
        open: impl FnMut(&str) -> Result<Arc<dyn SentenceDocuments>, E>,
    ) -> Result<Self, E> {
        builder::build(config, &MaskedKind::new(tokenizer), open)
    }
}

#[cfg(test)]
mod tests;
