//! `Checkpointing`: when a training program saves.

use anyhow::Context as _;
use burn_megatron::checkpoint::{CheckpointConfig, CheckpointWriter};
use burn_megatron::collectives::{GroupConfig, ProcessGroup};
use burn_megatron::context::ParallelContext;
use burn_megatron::launch::{Environment, World};
use models::ModelFamily;
use serde_json::json;

use crate::arguments::CheckpointArguments;
use crate::saved_state::RUN;
use crate::session::Session;

/// Outcome of a save.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saving {
    /// It continues during training.
    Begun,
    /// The checkpoint is whole, on the disk.
    Done,
}

/// Saves a session at its times.
#[derive(Debug)]
pub struct Checkpointing {
    writer: CheckpointWriter,
    interval: u64,
    is_asynchronous: bool,
    /// The mark that tells this run's checkpoints from those of others when it has been started again.
    run: Option<String>,
}

impl Checkpointing {
    /// Takes the folder that the flags name; none where they name none.
    ///
    /// # Communication
    /// The ranks of the world connect a group for it.
    ///
    /// # Errors
    /// When another run saves there, or it cannot be written.
    pub fn new(
        arguments: &CheckpointArguments,
        world: &World,
        context: &ParallelContext,
    ) -> anyhow::Result<Option<Self>> {
        let Some(folder) = &arguments.save else {
            return Ok(None);
        };
        let ranks: Vec<usize> = (0..world.world_size()).collect();
        let group = match ranks.len() {
            1 => ProcessGroup::single(),
            _ => ProcessGroup::connect(world, "checkpoint", &ranks, &GroupConfig::new())?,
        };
        let grid = context.grid();
        let options = CheckpointConfig {
            keep: arguments.ckpt_keep,
            layout: json!({
                "tensor": grid.tensor_parallel_size(),
                "pipeline": grid.pipeline_parallel_size(),
                "data": grid.data_parallel_size(),
                "sequence_parallel": context.is_sequence_parallel(),
            }),
            ..CheckpointConfig::new()
        };
        Ok(Some(Self {
            writer: CheckpointWriter::new(group, folder, options)?,
            interval: arguments.save_interval,
            is_asynchronous: arguments.async_save,
            run: Environment::detect()?.and_then(|environment| environment.run().map(str::to_owned)),
        }))
    }

    /// Checks that the folder has no checkpoint that the run, which is where `session` is, has not come to yet.
    ///
    /// # Communication
    /// That of [`CheckpointWriter::begin_at`].
    ///
    /// # Errors
    /// When it has one: this run's checkpoints would be taken for older ones.
    pub fn begin(&self, session: &Session<impl ModelFamily>) -> anyhow::Result<()> {
        Ok(self.writer.begin_at(session.iteration())?)
    }

    /// Saves after a step if a save is due: at every interval, and after the last step of the run, whose save is waited
    /// for.
    ///
    /// If an asynchronous save has failed, the next one is waited for; the run continues if that succeeds.
    ///
    /// # Communication
    /// That of [`CheckpointWriter::save`], on a group of its own.
    ///
    /// # Errors
    /// When a checkpoint cannot be written: what was saved before is whole.
    pub fn after_step(&mut self, session: &Session<impl ModelFamily>, is_last: bool) -> anyhow::Result<Option<Saving>> {
        let step = session.iteration();
        let is_due = self.interval > 0 && step.is_multiple_of(self.interval);
        if !(is_due || is_last) {
            return Ok(None);
        }
        let earlier = self.writer.wait();
        let mut state = serde_json::to_value(session.state()).context("the state of the run")?;
        if let Some(run) = &self.run {
            state[RUN] = run.clone().into();
        }
        let is_begun = self.is_asynchronous && !is_last && earlier.is_ok();
        if is_begun {
            self.writer.save_start(step, session.snapshot()?, state)?
        } else {
            self.writer.save(step, session.snapshot()?, state)?
        }
        if let Err(error) = earlier {
            tracing::warn!(%error, "the checkpoint of step {step} is saved, the one before it is not");
        }
        Ok(Some(if is_begun { Saving::Begun } else { Saving::Done }))
    }
}
