//! `PipelineError`: what can end a pipelined pass.

use super::schedule::ScheduleError;
use crate::collectives::CollectiveError;
use crate::data_parallel::DataParallelError;

/// What can end a pass through a pipeline.
#[derive(Debug, thiserror::Error)]
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
    /// Ranks of a pipeline with different schedules.
    #[error(
        "the stages of a pipeline must have one schedule, but that of rank {other} is not that of rank {first}: give \
         every rank the same schedule, chunks and micro-batches (rank {rank} has {here})"
    )]
    SchedulesDiffer {
        /// This rank.
        rank: usize,
        /// This rank's schedule, in words.
        here: String,
        /// The first stage's rank.
        first: usize,
        /// The first rank whose schedule is another.
        other: usize,
    },
    /// burn's own dropout where a segment is recomputed.
    #[error(
        "rank {rank}: the stage has burn's Dropout and recomputes a segment, but it drops other elements the second \
         time; use burn_megatron::random::Dropout, which drops the same"
    )]
    ForeignDropout {
        /// This rank.
        rank: usize,
    },
    /// A schedule for another number of stages.
    #[error("rank {rank}: the schedule is for {scheduled} stages, but the pipeline group has {ranks} ranks")]
    Stages {
        /// This rank.
        rank: usize,
        /// The schedule's stages.
        scheduled: usize,
        /// The ranks of the pipeline group.
        ranks: usize,
    },
    /// Another number of chunks than the schedule's.
    #[error("rank {rank}: the schedule is for {scheduled} chunks per stage, but the model has {given} here")]
    Chunks {
        /// This rank.
        rank: usize,
        /// The schedule's chunks per stage.
        scheduled: usize,
        /// The model's chunks on this rank.
        given: usize,
    },
    /// Another number of micro-batches than the schedule's.
    #[error("rank {rank}: the schedule is for {scheduled} micro-batches, got {given}")]
    MicroBatches {
        /// This rank.
        rank: usize,
        /// The schedule's micro-batches.
        scheduled: usize,
        /// What was given.
        given: usize,
    },
}
