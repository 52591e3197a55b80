//! Training samples cut from the token stream of shuffled documents.

use std::{ops::Range, sync::Arc};

use burn::config::Config;

use super::{documents::TokenDocuments, error::DataError, mt19937::Mt19937};

/// What a data set is made of.
#[derive(Config, Debug, PartialEq, Eq)]
pub struct GptDatasetConfig {
    /// Tokens that the model sees of one sample.
    pub seq_length: usize,
    /// Samples wanted; there can be more, up to the end of the last epoch.
    pub num_samples: usize,
    /// Seed of both shuffles, as numpy's `RandomState` takes it.
    #[config(default = 1234)]
    pub seed: u32,
}

/// Samples of `seq_length + 1` tokens, in an order that depends on the documents and the seed.
///
/// The documents, repeated for the number of epochs that the samples need, are shuffled and read as one stream, which
/// ignores their boundaries. With T the tokens of an epoch and s the sequence length, e epochs, the fewest with
/// `e·T ≥ num_samples·s + 1`, hold `floor((e·T − 1) / s)` samples. Sample i is the stream's tokens `i·s ..= (i+1)·s`:
/// the last token of one is the first of the next, once as a target and once as an input. Then the samples are
/// shuffled.
///
/// Where the last epoch gives less than 0.8 of its samples, it is shuffled alone, documents and
/// samples, after the others: shuffled among them, its documents would turn up more often than
/// the rest within the samples that are really read.
///
/// # Reference
/// Megatron-LM's `GPTDataset`, whose sample order this reproduces.
#[derive(Debug, Clone)]
pub struct GptDataset {
    documents: Arc<TokenDocuments>,
    seq_length: usize,
    /// Document to read at each place of the stream, all epochs one after the other.
    document_index: Vec<u32>,
    /// Where each sample starts, in stream order.
    sample_index: Vec<SampleStart>,
    /// Sample in stream order for each sample in training order.
    shuffle_index: Vec<u32>,
}

/// The place of a sample's first token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SampleStart {
    /// Position in the document index.
    position: usize,
    /// Tokens into that document.
    offset: usize,
}

/// How often the documents are read, and which epochs are shuffled together.
#[derive(Debug, PartialEq, Eq)]
struct Epochs {
    num_epochs: usize,
    /// Samples to the end of the last epoch.
    num_samples: usize,
    /// Samples before the last epoch, where it is shuffled alone.
    samples_before_last: Option<usize>,
}

impl GptDataset {
    /// Returns the data set of the documents `range`.
    ///
    /// # Errors
    /// The configuration asks for no sample or for samples without tokens, or for more than 2^32
    /// samples or documents over all epochs, or the documents hold no token.
    ///
    /// # Panics
    /// If `range` ends after the last document.
    pub fn new(
        config: &GptDatasetConfig,
        documents: Arc<TokenDocuments>,
        range: Range<usize>,
    ) -> Result<Self, DataError> {
        assert!(
            range.end <= documents.len(),
            "documents {range:?} of {} documents",
            documents.len()
        );
        let lengths = range.clone().map(|index| documents.document(index).len());
        let tokens_per_epoch: usize = lengths.sum();
        at_least_one("sequence length (--seq-length)", config.seq_length)?;
        at_least_one("number of samples", config.num_samples)?;
        at_least_one("number of tokens of the documents", tokens_per_epoch)?;

        let epochs = plan_epochs(config, tokens_per_epoch);
        fits_32_bits("number of samples", epochs.num_samples)?;
        fits_32_bits("documents over all epochs", epochs.num_epochs.saturating_mul(range.end))?;

        // One generator, in this order: first the documents, then the samples.
        let mut generator = Mt19937::new(config.seed);
        let document_index = shuffled_documents(&epochs, &range, &mut generator);
        let length = |index: u32| documents.document(index as usize).len();
        let sample_index = sample_starts(&document_index, length, config.seq_length, &epochs);
        let shuffle_index = shuffled_samples(&epochs, &mut generator);
        Ok(Self {
            documents,
            seq_length: config.seq_length,
            document_index,
            sample_index,
            shuffle_index,
        })
    }

    /// Returns the number of samples, at least the number that was asked for.
    pub fn len(&self) -> usize {
        self.shuffle_index.len()
    }

    /// Returns whether there is no sample, which [`GptDataset::new`] rules out.
    pub fn is_empty(&self) -> bool {
        self.shuffle_index.is_empty()
    }

    /// Returns the tokens that the model sees of one sample.
    pub fn seq_length(&self) -> usize {
        self.seq_length
    }

    /// Appends the `seq_length + 1` tokens of sample `index`, in training order, to `tokens`.
    ///
    /// The inputs are all but the last, the targets all but the first.
    ///
    /// # Errors
    /// There is no such sample.
    pub fn read_sample(&self, index: u64, tokens: &mut Vec<u16>) -> Result<(), DataError> {
        let num_samples = self.len();
        let in_stream = usize::try_from(index)
            .ok()
            .and_then(|index| self.shuffle_index.get(index))
            .ok_or(DataError::SampleOutOfRange { index, num_samples })?;
        let start = self.sample_index[*in_stream as usize];
        let mut offset = start.offset;
        let mut missing = self.seq_length + 1;
        for &document in &self.document_index[start.position..] {
            let document = self.documents.document(document as usize);
            let available = &document[offset..];
            let taken = available.len().min(missing);
            tokens.extend_from_slice(&available[..taken]);
            missing -= taken;
            if missing == 0 {
                break;
            }
            offset = 0;
        }
        assert_eq!(missing, 0, "sample {index} ran out of documents");
        Ok(())
    }
}

/// Plans the epochs for the wanted samples.
fn plan_epochs(config: &GptDatasetConfig, tokens_per_epoch: usize) -> Epochs {
    let GptDatasetConfig {
        seq_length,
        num_samples: wanted,
        ..
    } = *config;
    // Tokens are shared between neighbours, so the last sample alone needs one more.
    let samples_in = |tokens: usize| (tokens - 1) / seq_length;
    let wanted_tokens = wanted.saturating_mul(seq_length).saturating_add(1);
    let num_epochs = wanted_tokens.div_ceil(tokens_per_epoch);
    let num_samples = samples_in(num_epochs.saturating_mul(tokens_per_epoch));
    let mut samples_before_last = None;
    if num_epochs > 1 {
        let before_last = samples_in((num_epochs - 1) * tokens_per_epoch);
        // Rounded down, as Megatron-LM does: it decides where 0.8 of the samples is no integer.
        let threshold = (0.8 * samples_in(tokens_per_epoch) as f64) as usize;
        if wanted - before_last < threshold {
            samples_before_last = Some(before_last);
        }
    }
    Epochs {
        num_epochs,
        num_samples,
        samples_before_last,
    }
}

/// Returns the documents of all epochs in reading order.
fn shuffled_documents(epochs: &Epochs, range: &Range<usize>, generator: &mut Mt19937) -> Vec<u32> {
    let mut shuffled = |num_epochs: usize| {
        let one_epoch = range.start as u32..range.end as u32;
        let mut documents: Vec<u32> = (0..num_epochs).flat_map(|_| one_epoch.clone()).collect();
        generator.shuffle(&mut documents);
        documents
    };
    if epochs.samples_before_last.is_none() {
        return shuffled(epochs.num_epochs);
    }
    let mut documents = shuffled(epochs.num_epochs - 1);
    documents.extend(shuffled(1));
    documents
}

/// Returns the order of the samples.
fn shuffled_samples(epochs: &Epochs, generator: &mut Mt19937) -> Vec<u32> {
    let mut samples: Vec<u32> = (0..epochs.num_samples as u32).collect();
    match epochs.samples_before_last {
        None => generator.shuffle(&mut samples),
        Some(before_last) => {
            let (first, last) = samples.split_at_mut(before_last);
            generator.shuffle(first);
            generator.shuffle(last);
        }
    }
    samples
}

/// Walks the documents once and notes where every sample starts.
///
/// A sample's first token is the last one of the sample before. If that ends a document, the
/// sample starts at `length − 1` of this document, not at 0 of the next.
fn sample_starts(
    document_index: &[u32],
    length: impl Fn(u32) -> usize,
    seq_length: usize,
    epochs: &Epochs,
) -> Vec<SampleStart> {
    let mut starts = Vec::with_capacity(epochs.num_samples);
    let mut start_in_stream = 0; // of the document at `position`
    for (position, &document) in document_index.iter().enumerate() {
        let end_in_stream = start_in_stream + length(document);
        // Sample i starts at token i · s of the stream.
        while starts.len() < epochs.num_samples && starts.len() * seq_length < end_in_stream {
            let offset = starts.len() * seq_length - start_in_stream;
            starts.push(SampleStart { position, offset });
        }
        start_in_stream = end_in_stream;
    }
    assert_eq!(starts.len(), epochs.num_samples, "starts of all samples");
    starts
}

fn at_least_one(name: &'static str, value: usize) -> Result<(), DataError> {
    if value == 0 {
        return Err(DataError::configuration(name, "at least 1", value));
    }
    Ok(())
}

fn fits_32_bits(name: &'static str, value: usize) -> Result<(), DataError> {
    if u32::try_from(value).is_err() {
        return Err(DataError::configuration(name, format!("at most {}", u32::MAX), value));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
