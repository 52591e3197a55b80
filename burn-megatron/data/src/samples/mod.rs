//! Samples in the order of training: [`Samples`] of one row of tokens, and [`SampleSet`] of any type.

mod error;

pub use error::SampleError;

/// Checks that there is one at least.
pub(crate) fn at_least_one(name: &'static str, value: u64) -> Result<(), SampleError> {
    if value == 0 {
        return Err(SampleError::setting(name, "at least 1", value));
    }
    Ok(())
}

/// Checks that a number fits the 32 bits that it has in an index.
pub(crate) fn fits_32_bits(name: &'static str, value: u128) -> Result<usize, SampleError> {
    match u32::try_from(value) {
        Ok(value) => Ok(value as usize),
        Err(_) => Err(SampleError::setting(name, format!("at most {}", u32::MAX), value)),
    }
}

/// Returns the entry of a sample in an array that has one for each.
pub(crate) fn entry<T: Copy>(entries: &[T], index: u64) -> Result<T, SampleError> {
    let entry = usize::try_from(index).ok().and_then(|place| entries.get(place));
    entry.copied().ok_or(SampleError::SampleOutOfRange {
        index,
        num_samples: entries.len() as u64,
    })
}

/// Samples of equal length that can be read in any order: a training run resumes at any of them.
pub trait Samples: Send + Sync {
    /// Returns the number of samples.
    fn num_samples(&self) -> u64;

    /// Returns numbers that decide, next to the documents and the seed, where each sample is. Data sets of the same
    /// documents and seed with the same numbers have the same samples in the same places, as far as both go.
    fn order(&self) -> Vec<u64> {
        vec![self.num_samples()]
    }

    /// Returns the tokens that the model sees of one sample.
    fn seq_length(&self) -> usize;

    /// Returns the number of tokens of a sample as it is read: one more than the model sees, the last target, if the
    /// data set has it.
    fn sample_length(&self) -> usize;

    /// Appends the [`sample_length`](Self::sample_length) tokens of a sample, in training order; returns how many of
    /// them are of documents. Fewer than all in a last sample that is not full: zeros are appended to those, and no
    /// loss is to be taken from them.
    ///
    /// # Errors
    /// There is no such sample, or its index and the documents do not belong together.
    fn read_sample(&self, index: u64, tokens: &mut Vec<u32>) -> Result<usize, SampleError>;
}

/// Samples of a type of their own (BERT's, T5's, those of conversations) that can be read in any order: what one has
/// does not depend on which were read before, by which process, or in which parallel layout.
pub trait SampleSet: Send + Sync {
    /// What a sample is.
    type Sample;

    /// Returns the number of samples.
    fn num_samples(&self) -> u64;

    /// Returns numbers that decide, next to the documents and the seed, where each sample is. Data sets of the same
    /// documents and seed with the same numbers have the same samples in the same places, as far as both go.
    fn order(&self) -> Vec<u64> {
        vec![self.num_samples()]
    }

    /// Returns the tokens that the model sees of one sample.
    fn seq_length(&self) -> usize;

    /// Returns a sample, by its place in training order.
    ///
    /// # Errors
    /// There is no such sample, its index and the documents do not belong together, or the documents are of another
    /// tokenizer.
    fn read(&self, index: u64) -> Result<Self::Sample, SampleError>;
}
