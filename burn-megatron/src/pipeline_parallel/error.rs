//! `PipelineError`: what can end a pipelined pass.

use super::schedule::ScheduleError;
use crate::collectives::CollectiveError;
use crate::data_parallel::DataParallelError;

/// What can end a pass through a pipeline.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum PipelineError {
    /// A schedule that cannot be, or is wrong.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// A transfer, or a collective of a layer, failed.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    /// The gradients' part of the step failed.
    #[error(transparent)]
    DataParallel(#[from] DataParallelError),
    #[error(
        "the stages of a pipeline must have one schedule, but that of rank {other} is not that of rank {first}: give \
         every rank the same schedule, chunks and micro-batches (rank {rank} has {here})"
    )]
    SchedulesDiffer {
        rank: usize,
        here: String,
        first: usize,
        /// The first rank whose schedule is another.
        other: usize,
    },
    #[error(
        "rank {rank}: the stage has burn's Dropout and recomputes a segment, but it drops other elements the second \
         time; use burn_megatron::random::Dropout, which drops the same"
    )]
    ForeignDropout { rank: usize },
    #[error("rank {rank}: the schedule is for {scheduled} stages, but the pipeline group has {ranks} ranks")]
    Stages {
        rank: usize,
        scheduled: usize,
        ranks: usize,
    },
    #[error("rank {rank}: the schedule is for {scheduled} chunks per stage, but the model has {given} here")]
    Chunks {
        rank: usize,
        scheduled: usize,
        given: usize,
    },
    #[error("rank {rank}: the schedule is for {scheduled} micro-batches, got {given}")]
    MicroBatches {
        rank: usize,
        scheduled: usize,
        given: usize,
    },
}
