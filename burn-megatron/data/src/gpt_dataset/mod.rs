//! Training samples cut from the token stream of shuffled documents.

mod build;
mod plan;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::index_cache::{IndexArray, IndexCache};
use crate::indexed_dataset::TokenDocuments;
use crate::samples::{SampleError, Samples, entry};
use build::{Indices, Survey};
use plan::EpochPlan;

/// What a data set is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GptDatasetConfig {
    /// Tokens that the model sees of one sample.
    pub seq_length: usize,
    /// Samples wanted: there can be more, up to the end of the last epoch. `None` for those of one epoch.
    pub num_samples: Option<u64>,
    /// Seed of both shuffles, as numpy's `RandomState` takes it.
    pub seed: u32,
    /// Whether a sample has a token more than the model sees, the target of its last input, which is the first input of
    /// the next sample. Megatron-LM's `add_extra_token_to_sequence`.
    pub extra_token: bool,
    /// Whether the tokens at the end of the last epoch that do not fill a sample are left out; otherwise they are one,
    /// filled with zeros. Megatron-LM leaves them out in training, and in validation by default.
    pub drop_last_partial: bool,
}

impl GptDatasetConfig {
    /// Returns the configuration for at least `num_samples` samples: seed 1234, an extra token, full samples only.
    pub fn new(seq_length: usize, num_samples: u64) -> Self {
        Self {
            num_samples: Some(num_samples),
            ..Self::one_epoch(seq_length)
        }
    }

    /// Returns the same for the samples of one epoch.
    pub fn one_epoch(seq_length: usize) -> Self {
        Self {
            seq_length,
            num_samples: None,
            seed: 1234,
            extra_token: true,
            drop_last_partial: true,
        }
    }

    /// Returns the configuration with another seed.
    pub fn with_seed(self, seed: u32) -> Self {
        Self { seed, ..self }
    }

    /// Tokens of a sample.
    fn sample_length(&self) -> usize {
        self.seq_length + usize::from(self.extra_token)
    }
}

/// Samples of `seq_length + 1` tokens, in an order that depends on the lengths of the documents and the seed.
///
/// The documents, repeated for the number of epochs that the samples need, are shuffled and read as one stream, which
/// ignores their boundaries. With T the tokens of an epoch and s the sequence length, e epochs, the fewest with
/// `e·T ≥ num_samples·s + 1`, hold `floor((e·T − 1) / s)` samples. Sample i is the stream's tokens `i·s ..= (i+1)·s`:
/// the last token of one is the first of the next, once as a target and once as an input. Then the samples are
/// shuffled. (Without the extra token `+ 1`, `− 1` and the shared token are not there.)
///
/// Where the last epoch gives less than 0.8 of its samples, it is shuffled alone, documents and
/// samples, after the others: shuffled among them, its documents would turn up more often than
/// the rest within the samples that are really read.
///
/// Three arrays hold the order: 12 bytes per sample and 4 per document and epoch. A sample is found in the same time
/// wherever it is.
///
/// # Reference
/// Megatron-LM's `GPTDataset`, whose sample order this reproduces.
#[derive(Clone)]
pub struct GptDataset {
    documents: Arc<dyn TokenDocuments>,
    range: Range<usize>,
    config: GptDatasetConfig,
    num_samples: u64,
    /// Samples before the last epoch, if it is shuffled alone.
    samples_before_last: Option<usize>,
    /// Document to read at each place of the stream, all epochs one after the other.
    document_index: IndexArray<u32>,
    /// Where each sample's first token is, in stream order: the place in the document index, and tokens into that
    /// document.
    sample_index: IndexArray<[u32; 2]>,
    /// Sample in stream order for each sample in training order.
    shuffle_index: IndexArray<u32>,
}

impl GptDataset {
    /// Returns the data set of the documents `range`, whose order this process makes and keeps.
    ///
    /// # Errors
    /// The configuration asks for no sample or for samples without tokens, for more samples or documents over all
    /// epochs than 32 bits count, or the documents hold too few tokens.
    ///
    /// # Panics
    /// If `range` ends after the last document.
    pub fn new(
        config: &GptDatasetConfig,
        documents: Arc<dyn TokenDocuments>,
        range: Range<usize>,
    ) -> Result<Self, SampleError> {
        let survey = Survey::of(&*documents, &range)?;
        let plan = plan::plan_epochs(config, survey.num_tokens, range.len())?;
        let indices = build::in_memory(config, &*documents, &range, &plan)?;
        Ok(Self::with_indices(config, documents, range, &plan, indices))
    }

    /// Returns the same with the order mapped from `cache`, where it is made first if it is not there. Of all processes
    /// of a machine one makes it, the others wait, and all share the memory.
    ///
    /// The order depends on the lengths of the documents, not on their names: its key in the cache has their hash.
    ///
    /// # Errors
    /// As [`new`](Self::new); the cache cannot be read or written, or another process holds its lock for too long.
    ///
    /// # Panics
    /// If `range` ends after the last document.
    pub fn with_cache(
        config: &GptDatasetConfig,
        documents: Arc<dyn TokenDocuments>,
        range: Range<usize>,
        cache: &IndexCache,
    ) -> Result<Self, SampleError> {
        let survey = Survey::of(&*documents, &range)?;
        let plan = plan::plan_epochs(config, survey.num_tokens, range.len())?;
        let description = survey.description(config, &range);
        let file = cache.open_or_build("gpt", &description, &build::layout(&plan), |writer| {
            build::to_file(config, &*documents, &range, &plan, writer)
        })?;
        let indices = Indices::of(&file);
        Ok(Self::with_indices(config, documents, range, &plan, indices))
    }

    fn with_indices(
        config: &GptDatasetConfig,
        documents: Arc<dyn TokenDocuments>,
        range: Range<usize>,
        plan: &EpochPlan,
        indices: Indices,
    ) -> Self {
        Self {
            documents,
            range,
            config: config.clone(),
            num_samples: plan.num_samples as u64,
            samples_before_last: plan.samples_before_last,
            document_index: indices.documents,
            sample_index: indices.samples,
            shuffle_index: indices.shuffle,
        }
    }

    /// Returns the bytes of the three arrays.
    pub fn index_bytes(&self) -> u64 {
        let documents = size_of_val::<[u32]>(&self.document_index);
        let samples = size_of_val::<[[u32; 2]]>(&self.sample_index);
        (documents + samples + size_of_val::<[u32]>(&self.shuffle_index)) as u64
    }

    /// Where the first token of a sample is.
    fn start(&self, index: u64) -> Result<[u32; 2], SampleError> {
        let sample = entry(&self.shuffle_index, index)?;
        let start = self.sample_index.get(sample as usize).copied();
        start.ok_or_else(|| SampleError::WrongIndex {
            index,
            place: format!("sample {sample} of {} in the stream", self.sample_index.len()),
        })
    }
}

impl Samples for GptDataset {
    fn num_samples(&self) -> u64 {
        self.num_samples
    }

    /// Returns the samples of all epochs, and those before the last one if that is shuffled alone, else 0.
    fn order(&self) -> Vec<u64> {
        vec![self.num_samples, self.samples_before_last.unwrap_or(0) as u64]
    }

    fn seq_length(&self) -> usize {
        self.config.seq_length
    }

    fn sample_length(&self) -> usize {
        self.config.sample_length()
    }

    /// The inputs are all but the last, the targets all but the first.
    fn read_sample(&self, index: u64, tokens: &mut Vec<u32>) -> Result<usize, SampleError> {
        let [position, offset] = self.start(index)?;
        let wrong_place = |place| SampleError::WrongIndex { index, place };
        let places = self.document_index.get(position as usize..);
        let places = places.ok_or_else(|| wrong_place(format!("place {position} of the stream")))?;
        let mut offset = offset as usize;
        let mut missing = self.config.sample_length();
        for &document in places {
            let document = document as usize;
            if !self.range.contains(&document) {
                return Err(wrong_place(format!("document {document}")));
            }
            let available = self.documents.document_length(document).checked_sub(offset);
            let available = available.ok_or_else(|| wrong_place(format!("token {offset} of document {document}")))?;
            let taken = available.min(missing);
            self.documents.read(document, offset..offset + taken, tokens);
            missing -= taken;
            if missing == 0 {
                break;
            }
            offset = 0;
        }
        let read = self.config.sample_length() - missing;
        if missing > 0 && self.config.drop_last_partial {
            return Err(wrong_place(format!("{missing} tokens after the end of the stream")));
        }
        tokens.resize(tokens.len() + missing, 0);
        Ok(read)
    }
}

impl fmt::Debug for GptDataset {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("GptDataset");
        debug.field("config", &self.config).field("range", &self.range);
        debug.field("num_samples", &self.num_samples).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
