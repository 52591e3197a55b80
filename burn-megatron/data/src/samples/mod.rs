//! Samples in the order of training: [`Samples`] of one row of tokens, and [`SampleSet`] of any type.

mod error;

pub use error::SampleError;

/// Samples of equal length that can be read in any order: a training run resumes at any of them.
pub trait Samples: Send + Sync {
    /// Returns the number of samples.
    fn num_samples(&self) -> u64;

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

    /// Returns the tokens that the model sees of one sample.
    fn seq_length(&self) -> usize;

    /// Returns a sample, by its place in training order.
    ///
    /// # Errors
    /// There is no such sample, or its index and the documents do not belong together.
    fn read(&self, index: u64) -> Result<Self::Sample, SampleError>;
}
