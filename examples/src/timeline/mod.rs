//! The timeline of a run's profiled steps: recorded on every rank, drawn and written by rank 0.

mod file;
mod picture;
mod recording;

use std::ops::Range;
use std::path::PathBuf;

use anyhow::Context as _;
use models::ModelFamily;

use crate::arguments::LoggingArguments;
use crate::session::Session;

pub use recording::Recording;

/// Starts and stops the recording, and writes what was asked for.
pub struct Recorder {
    steps: Range<u64>,
    svg: Option<PathBuf>,
    trace: Option<PathBuf>,
}

impl Recorder {
    /// Returns the recorder of a run on this rank; `None` if no timeline is asked for.
    ///
    /// # Errors
    /// On rank 0, when a file cannot be written.
    pub fn new(logging: &LoggingArguments, rank: usize) -> anyhow::Result<Option<Self>> {
        if !logging.wants_timeline() {
            return Ok(None);
        }
        if rank == 0 {
            for path in logging.timeline.iter().chain(&logging.trace) {
                file::check(path)?;
            }
        }
        Ok(Some(Self {
            steps: logging.profile_steps(),
            svg: logging.timeline.clone(),
            trace: logging.trace.clone(),
        }))
    }

    /// Starts the recording before its first step.
    ///
    /// # Communication
    /// Before that step, two barriers over the world.
    pub fn before_step(&self, step: u64, session: &Session<impl ModelFamily>) -> anyhow::Result<()> {
        if step == self.steps.start {
            session.timeline().start(session.context().world_group())?;
        }
        Ok(())
    }

    /// Ends the recording after its last step, or earlier where the run ends: rank 0 writes the files. Returns what
    /// was measured, on rank 0, if something was.
    ///
    /// # Communication
    /// At the end, one all-reduce and one all-gather over the world.
    ///
    /// # Errors
    /// When they fail, the steps were not recorded whole, or a file cannot be written.
    pub fn after_step(
        &self,
        step: u64,
        is_last: bool,
        session: &Session<impl ModelFamily>,
    ) -> anyhow::Result<Option<String>> {
        let is_recorded = self.steps.contains(&step);
        if !is_recorded || !(is_last || step + 1 == self.steps.end) {
            return Ok(None);
        }
        let context = session.context();
        session.timeline().stop();
        let ranks = session.timeline().gather(context.world_group())?;
        if context.rank() > 0 {
            return Ok(None);
        }
        let recording = Recording::new(*context.grid(), session.schedule().clone(), session.kind(), ranks)
            .context("the timeline")?;
        let mut summary = recording.summary();
        if let Some(path) = &self.svg {
            file::write(path, &picture::draw(&recording)?)?;
            summary.push_str(&format!(" | {}", path.display()));
        }
        if let Some(path) = &self.trace {
            file::write(path, &recording.trace())?;
            summary.push_str(&format!(" | {}", path.display()));
        }
        Ok(Some(summary))
    }
}
