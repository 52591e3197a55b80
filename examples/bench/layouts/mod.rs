//! Measures training speed in several layouts against one rank, in turn: one rank, each layout, one rank, …
//!
//! ```text
//! cargo run --release --example bench -- layouts --layouts tp2sp,dp2
//! ```
//!
//! All runs have the same model and global batch, and the same cores: the launcher divides them among the ranks.
//! Machines drift, so a layout is compared with the one-rank run of its own round; medians are printed.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use burn_megatron::training::memory::keep_freed_memory;
use clap::Args;
use examples::arguments::{ParallelArguments, TrainingArguments};
use examples::figures::{bytes, median};
use examples::launching::refuse_launcher;
use examples::layout::Layout;
use examples::measured_run::{self, WARM_UP_STEPS, run_rank};

/// Measure training speed in several layouts against one rank.
#[derive(Args)]
pub struct Arguments {
    /// Layouts to measure: tpN, with sp for sequence parallelism, dpN, or several in one, as in tp2spdp2
    #[arg(long, value_name = "LAYOUT,...", value_delimiter = ',', default_value = "tp2sp,dp2")]
    layouts: Vec<Layout>,
    /// How often each layout is measured
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// Steps that count in each run
    #[arg(long, value_name = "N", default_value_t = 12)]
    steps: usize,
    #[command(flatten)]
    training: TrainingArguments,
    /// The layout that this rank is part of, set for the ranks that this program starts
    #[arg(long, hide = true, requires = "worker_log")]
    worker_layout: Option<Layout>,
    /// Where rank 0 writes its metrics, likewise
    #[arg(long, hide = true, requires = "worker_layout")]
    worker_log: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    keep_freed_memory();
    match (&arguments.worker_layout, &arguments.worker_log) {
        (Some(layout), Some(log)) => run_rank(&training(arguments, layout), log),
        _ => measure(arguments),
    }
}

/// What one run of a layout gave.
struct Measurement {
    tokens_per_second: f64,
    peak_memory_bytes: u64,
    communication_bytes: u64,
}

/// Runs every layout in turn and prints the table.
fn measure(arguments: &Arguments) -> anyhow::Result<()> {
    let flags = &arguments.training.parallel;
    ensure!(
        flags.num_layers_per_virtual_pipeline_stage.is_none(),
        "--num-layers-per-virtual-pipeline-stage is not for layouts: give the chunks of a stage as vN in --layouts"
    );
    flags.stages.check_layouts(&arguments.layouts)?;
    arguments.training.deepspeed.check_not_given("bench layouts")?;
    refuse_launcher("bench layouts")?;
    ensure!(
        arguments.rounds > 0 && arguments.steps > 0,
        "--rounds and --steps must be at least 1, got {} and {}",
        arguments.rounds,
        arguments.steps
    );
    let layouts: Vec<Layout> = [Layout::ONE_RANK]
        .into_iter()
        .chain(arguments.layouts.clone())
        .collect();
    for layout in &layouts {
        training(arguments, layout)
            .validate()
            .with_context(|| format!("layout {layout} does not fit"))?;
    }
    let folder = tempfile::tempdir().context("cannot make a folder for metrics")?;
    let mut rounds: Vec<Vec<Measurement>> = Vec::new();
    for round in 1..=arguments.rounds {
        let measured = layouts
            .iter()
            .map(|layout| launch(layout, arguments.steps, folder.path()))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let speeds: Vec<String> = layouts
            .iter()
            .zip(&measured)
            .map(|(layout, m)| format!("{} {:.0}", layout.title(), m.tokens_per_second))
            .collect();
        println!("round {round}: tokens/s {}", speeds.join(", "));
        rounds.push(measured);
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!(
        "\nmedians of {} rounds of {} steps on {cores} cores",
        arguments.rounds, arguments.steps
    );
    println!("layout      ranks  tokens/s  ratio to one rank  peak memory per rank  sent per step");
    for (column, layout) in layouts.iter().enumerate() {
        let of = |figure: &dyn Fn(&[Measurement]) -> f64| median(rounds.iter().map(|round| figure(round)).collect());
        println!(
            "{:<10}  {:>5}  {:>8.0}  {:>17.3}  {:>20}  {:>13}",
            layout.title(),
            layout.world_size(),
            of(&|round| round[column].tokens_per_second),
            of(&|round| round[column].tokens_per_second / round[0].tokens_per_second),
            bytes(of(&|round| round[column].peak_memory_bytes as f64) as u64),
            bytes(of(&|round| round[column].communication_bytes as f64) as u64),
        );
    }
    Ok(())
}

/// Runs one layout as a job of ranks, and returns the medians of its steps.
fn launch(layout: &Layout, steps: usize, folder: &Path) -> anyhow::Result<Measurement> {
    let variant = format!("--worker-layout={layout}");
    let counted = measured_run::launch(layout.world_size(), &variant, steps, folder)?;
    Ok(Measurement {
        tokens_per_second: median(counted.iter().map(|m| m.tokens_per_second).collect()),
        peak_memory_bytes: counted.iter().map(|m| m.peak_memory_bytes).max().unwrap_or(0),
        communication_bytes: counted[0].communication_bytes,
    })
}

/// The flags of a run in one layout.
fn training(arguments: &Arguments, layout: &Layout) -> TrainingArguments {
    let mut training = arguments.training.clone();
    let flags = &arguments.training.parallel;
    training.parallel = ParallelArguments::of_layout(layout, &flags.stages, &flags.communication);
    training.optimization.train_iters = Some((WARM_UP_STEPS + arguments.steps) as u64);
    training
}
