//! [`CompareError`]: comparisons that cannot be made, or do not hold.

use burn::tensor::DType;

use crate::collectives::CollectiveError;

/// A comparison that cannot be made, or that does not hold.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum CompareError {
    #[error("the program failed {run}: {source}")]
    Program {
        run: String,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("a collective failed {run}: {source}")]
    Collective { run: String, source: Box<CollectiveError> },
    #[error(
        "the program is not deterministic: on one rank the loss of step {step} was {first:?}, and {second:?} when it \
         ran again; draw from burn's generator alone, which each run starts from CompareConfig's seed, and keep no \
         state between runs"
    )]
    NotDeterministic {
        /// From 1.
        step: usize,
        first: f64,
        second: f64,
    },
    #[error("the program judged no step: call run.judge(&loss, &gradients, &model) in each")]
    NoSteps,
    #[error("the program judged {found} steps {run}, and {expected} on one rank: call Run::judge once in each step")]
    Steps { run: String, found: usize, expected: usize },
    #[error("the program judged a loss of shape {0:?}: expected one element, such as the mean over the batch")]
    Loss(Vec<usize>),
    #[error(
        "there is no parity tolerance for a loss of {0:?}: how far its rounding takes a run depends on the program; \
         compare in f64 or f32, or give CompareConfig::with_tolerance four times what one rank's run differs from that \
         in f32, which Judgement::tolerance is for"
    )]
    Tolerance(DType),
    #[error("rank {rank} failed: {message}")]
    OtherRank {
        /// The lowest rank that failed.
        rank: usize,
        /// Its error: the first 500 bytes of it.
        message: String,
    },
    /// A layout does not compute what one rank does.
    #[error("{0}")]
    Parity(String),
}

impl CompareError {
    /// What a program has returned, if it is one of these already.
    pub(super) fn of_program(source: Box<dyn std::error::Error + Send + Sync>, run: String) -> Self {
        match source.downcast::<Self>() {
            Ok(error) => *error,
            Err(source) => Self::Program { run, source },
        }
    }
}
