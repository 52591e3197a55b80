//! What can end training. Returned by [`Trainer`](super::Trainer).

use super::{NonFiniteOrigin, RestoreError, TrainingConfigError};
use crate::collectives::CollectiveError;
use crate::data_parallel::DataParallelError;
use crate::optimizer::{LossScaleError, OptimizerError};
use crate::pipeline_parallel::PipelineError;

/// What can end training.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum TrainingError {
    /// Settings that no run can have.
    #[error(transparent)]
    Config(#[from] TrainingConfigError),
    /// A collective failed, or replicas differ.
    #[error(transparent)]
    DataParallel(#[from] DataParallelError),
    /// The schedule cannot be, or a pass through the pipeline failed.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// The update failed.
    #[error(transparent)]
    Optimizer(#[from] OptimizerError),
    /// A checkpoint does not fit.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// A collective outside the passes failed.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    /// A GPU has not done what it was given.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    LostWork(#[from] crate::cuda::LostWork),
    #[error("token {token} is none of the {vocab_size} that the model knows, 0 to {}", vocab_size - 1)]
    UnknownToken {
        token: i32,
        /// The size of the vocabulary, without padding.
        vocab_size: usize,
    },
    #[error("{count} positions of up to {largest} are not those of {tokens} tokens in samples of {seq_length}")]
    Positions {
        count: usize,
        /// The largest as a number without a sign.
        largest: u32,
        tokens: usize,
        seq_length: usize,
    },
    #[error("every token of step {step} is masked: there is nothing to learn")]
    NoTokens {
        /// The step, counted from 1.
        step: u64,
    },
    #[error("there is no token to validate on: no micro-batches were given, or every token is masked")]
    NothingToValidate,
    /// A loss or a gradient is infinite or not a number, and there is no loss scale that could be the reason.
    #[error(
        "the {what} of step {step} is {value}: {origin}; \
         nothing was changed by this step: lower the learning rate, or look at the data"
    )]
    NotFinite {
        what: &'static str,
        /// The step, counted from 1.
        step: u64,
        value: f64,
        /// Which gradient, on which rank.
        origin: NonFiniteOrigin,
    },
    /// A loss scale that cannot be, or that cannot help.
    #[error(transparent)]
    LossScale(#[from] LossScaleError),
}
