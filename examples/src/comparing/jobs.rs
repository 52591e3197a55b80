//! `Run`: one training run in one layout, as a job of ranks that record, and what they left.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};
use burn_megatron::launch::{Launcher, Prefix};
use burn_megatron::training::StepMetrics;

use super::arguments::Arguments;
use super::interrupt::Interrupt;
use super::worker;
use crate::json_lines::JsonLines;
use crate::layout::Layout;
use crate::terminal::say;

/// A finished run: metrics in memory, recordings in files.
pub struct Run {
    name: String,
    layout: Layout,
    folder: PathBuf,
    /// By rank and step.
    metrics: Vec<Vec<StepMetrics>>,
}

/// What is left of a run when its recordings are gone.
pub struct RunSummary {
    /// The layout, as a person calls it.
    pub name: String,
    pub world_size: usize,
    /// The metrics of rank 0, step by step.
    pub metrics: Vec<StepMetrics>,
}

impl Run {
    /// Runs the one rank that the layouts are compared with.
    pub fn launch_reference(arguments: &Arguments, recordings: &Path, interrupt: &Interrupt) -> anyhow::Result<Self> {
        let run = Self::unfinished("one rank", Layout::ONE_RANK, recordings);
        run.finish(arguments, &["--worker-reference"], interrupt)
    }

    /// Runs a layout's job to its end.
    ///
    /// # Errors
    /// When a rank fails, or this process is asked to stop.
    pub fn launch(
        layout: Layout,
        arguments: &Arguments,
        recordings: &Path,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Self> {
        Self::unfinished(&layout.to_string(), layout, recordings).finish(arguments, &[], interrupt)
    }

    fn unfinished(name: &str, layout: Layout, recordings: &Path) -> Self {
        Self {
            name: name.to_owned(),
            layout,
            folder: recordings.join(name),
            metrics: Vec::new(),
        }
    }

    fn finish(mut self, arguments: &Arguments, worker_flags: &[&str], interrupt: &Interrupt) -> anyhow::Result<Self> {
        let (name, layout, folder) = (&self.name, self.layout, &self.folder);
        interrupt.check()?;
        std::fs::create_dir(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let live = std::io::stdout().is_terminal();
        let mut rank_arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
        rank_arguments.extend([format!("--worker-layout={layout}").into(), "--worker-folder".into()]);
        rank_arguments.push(folder.clone().into());
        rank_arguments.extend(live.then(|| "--worker-live".into()));
        rank_arguments.extend(worker_flags.iter().map(OsString::from));

        let started = Instant::now();
        let summary = Launcher::new(layout.world_size())
            .arguments(rank_arguments)
            .prefix(Prefix::AllButRankZero)
            .run()
            .with_context(|| format!("the run of {name} could not be started"))?;
        interrupt.check()?;
        if let Some(first) = summary.first_failure() {
            return Err(anyhow!(
                "the run of {name} failed: rank {}, {}",
                first.rank,
                first.outcome
            ));
        }
        let num_steps = arguments.training(&layout).optimization.num_steps()?;
        self.metrics = (0..layout.world_size())
            .map(|rank| read_metrics(&worker::metrics_path(folder, rank), num_steps))
            .collect::<anyhow::Result<_>>()?;
        self.tell(started.elapsed(), live);
        Ok(self)
    }

    pub fn world_size(&self) -> usize {
        self.layout.world_size()
    }

    /// The folder of the recordings.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn metrics(&self, rank: usize) -> &[StepMetrics] {
        &self.metrics[rank]
    }

    /// What is left when the recordings are no longer needed.
    pub fn into_summary(self) -> RunSummary {
        RunSummary {
            world_size: self.world_size(),
            name: self.name,
            metrics: self.metrics.into_iter().next().expect("a run has a rank 0"),
        }
    }

    fn tell(&self, elapsed: Duration, live: bool) {
        let (name, metrics) = (&self.name, self.metrics(0));
        let (Some(first), Some(last)) = (metrics.first(), metrics.last()) else {
            return;
        };
        say(&format!(
            "{}{name}: {} steps on {} in {:.1} s, loss {:.4} to {:.4}",
            if live { worker::CLEAR_LINE } else { "" },
            metrics.len(),
            match self.world_size() {
                1 => "1 rank".to_owned(),
                size => format!("{size} ranks"),
            },
            elapsed.as_secs_f64(),
            first.loss,
            last.loss
        ));
    }
}

fn read_metrics(path: &Path, num_steps: u64) -> anyhow::Result<Vec<StepMetrics>> {
    let metrics: Vec<StepMetrics> = JsonLines::read(path)?;
    ensure!(
        metrics.len() as u64 == num_steps,
        "{} holds {} steps, expected {num_steps}",
        path.display(),
        metrics.len()
    );
    Ok(metrics)
}
