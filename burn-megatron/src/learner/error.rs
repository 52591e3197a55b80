//! [`LearnerError`]: errors of training by the learner.

use std::panic::resume_unwind;

use crate::collectives::CollectiveError;
use crate::data_parallel::DataParallelError;
use crate::optimizer::OptimizerError;

/// An error of training by the learner.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum LearnerError {
    /// A collective failed.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    /// The model could not be wrapped, or a step failed.
    #[error(transparent)]
    DataParallel(#[from] DataParallelError),
    /// The sharded optimizer could not update the model.
    #[error(transparent)]
    Optimizer(Box<OptimizerError>),
    #[error(
        "the learner trains models that are whole on each rank, got {stages} pipeline stages: train those with \
         PipelineExecutor"
    )]
    Pipeline { stages: usize },
    /// burn-train's checkpoints of a model that is not whole on the first rank.
    #[error(
        "burn-train's file checkpointer would save the first rank's shards of a model that {ranks} tensor-parallel \
         ranks share: leave it out, and save with CheckpointWriter"
    )]
    TensorCheckpoint { ranks: usize },
    /// Sharded gradients without the optimizer that takes them.
    #[error(
        "DataParallelConfig::sharding needs an optimizer that takes shards: give Learner::new the one that \
         ParallelLearner::shard returns"
    )]
    NotSharded,
    /// burn's own optimizer for parameters that are cut.
    #[error(
        "{ranks} tensor-parallel ranks share each layer: burn's own optimizer would clip gradients by the norm of a \
         rank's shards; give Learner::new the one that ParallelLearner::shard returns"
    )]
    TensorOptimizer { ranks: usize },
    #[error(
        "the optimizer that ParallelLearner::shard returned was not used in the step: it must be the one given to \
         Learner::new, and an overridden TrainStep::optimize must call its `step` once"
    )]
    OptimizerNotUsed,
    #[error(
        "{name} has another learning rate than other parameters: an optimizer that ParallelLearner::shard returns has \
         one for all"
    )]
    LearningRates { name: String },
    /// A sharded optimizer outside of the launch that gives it its gradients.
    #[error(
        "the optimizer that ParallelLearner::shard returns updates a model inside the launch of the same \
         ParallelLearner, by one `step` per step: call ranks.launch(training, learner) in place of \
         training.launch(learner)"
    )]
    OutsideLaunch,
    #[error(
        "TrainStep::step returned {count} gradients of parameters that are not those of the module it was called on: \
         its loss must be computed with `self` alone"
    )]
    ForeignGradients { count: usize },
    #[error("{setting} is {mine} on rank {rank}, and {other} on rank {other_rank}: every rank must be given the same")]
    SettingsDiffer {
        setting: &'static str,
        mine: i64,
        rank: usize,
        other: i64,
        other_rank: usize,
    },
    #[error(
        "rank {rank} has samples of batch {batch} and the first data-parallel rank has none: shares go to the first \
         ranks first, as from shard_loader"
    )]
    FirstRankIdle {
        rank: usize,
        /// The number of the batch in its epoch, from 1.
        batch: usize,
    },
    #[error(
        "ranks {first} and {other} had the same outputs in each of the first {steps} {split} batches: give each rank \
         its share of the samples, with shard_loader in place of DataLoaderBuilder"
    )]
    SameSamples {
        first: usize,
        other: usize,
        steps: usize,
        /// Training or validation.
        split: &'static str,
    },
    /// Outputs that cannot be joined.
    #[error("part {part} of the output is {mine} on rank {first} and {other} on rank {rank}: {rule}")]
    OutputsDiffer {
        /// The number of the part, in the order of `GatherOutput::parts`.
        part: usize,
        mine: String,
        first: usize,
        other: String,
        rank: usize,
        rule: &'static str,
    },
    /// A checkpoint of another model or optimizer.
    #[error("the optimizer's record {what}: it was saved with another model, or with another optimizer")]
    Record { what: String },
}

impl From<OptimizerError> for LearnerError {
    fn from(error: OptimizerError) -> Self {
        Self::Optimizer(Box::new(error))
    }
}

/// Returns the value, or unwinds with the error as payload, for burn-train's functions, which cannot return one.
///
/// The panic hook is not called: `launch` returns the error. Called only while it runs.
pub(super) fn unwrap_or_unwind<T>(result: Result<T, LearnerError>) -> T {
    result.unwrap_or_else(|error| resume_unwind(Box::new(error)))
}
