//! burn-train's `Learner` on many ranks.
//!
//! [`ParallelLearner::launch`] runs a `SupervisedTraining` as burn-train's own `launch` does, on every rank of a job.
//! The first rank prints, logs, summarises and writes checkpoints; metrics, early stopping and interruption are those
//! of all ranks together; and `n` ranks that share each batch report what one rank does.
//!
//! A program changes in three places: its loaders come from [`shard_loader`](crate::data::shard_loader()), the training
//! is launched by [`ParallelLearner`], which has an example, and the types of a model's outputs implement
//! [`GatherOutput`], as burn-train's own do. Where the ranks do not divide every batch, the loaders ask for
//! [`LastBatch::Uneven`](crate::data::LastBatch::Uneven).

mod agreement;
mod epoch;
mod error;
mod launch;
mod output;
mod packing;
mod sharded;
mod silent;
mod strategy;

pub use error::LearnerError;
pub use launch::ParallelLearner;
pub use output::{GatherOutput, OutputPart};
pub use silent::SilentRenderer;
