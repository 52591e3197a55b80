//! Measures training speed in several layouts against one rank, in turn.
//!
//! ```text
//! cargo run --release --example bench -- layouts --layouts tp2sp,dp2
//! ```
//!
//! All runs have the same model and global batch, and the same cores: the launcher divides them among the ranks.
//! Machines drift, so a layout is compared with the one-rank run of its own round; medians are printed.

use anyhow::{Context as _, ensure};
use burn_megatron::training::memory::keep_freed_memory;
use clap::Args;
use examples::arguments::{ParallelArguments, TrainingArguments};
use examples::figures::median;
use examples::launching::refuse_launcher;
use examples::layout::Layout;
use examples::measured_run::{WARM_UP_STEPS, run_rank};

use crate::measure::{count, in_turn, ratio};
use crate::ranks;
use crate::table::{Row, table};

/// Measure training speed in several layouts against one rank.
#[derive(Args)]
pub struct Arguments {
    /// Layouts to measure: tpN, with sp for sequence parallelism, dpN, or several in one, as in tp2spdp2
    #[arg(long, value_name = "LAYOUT,...", value_delimiter = ',', default_value = "tp2sp,dp2")]
    layouts: Vec<Layout>,
    /// How often each layout is measured
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = count())]
    rounds: usize,
    /// Steps that count in each run
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = count())]
    steps: usize,
    #[command(flatten)]
    training: TrainingArguments,
}

/// Runs every layout in turn and prints the table; or trains as a rank of one.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    keep_freed_memory();
    if let Some((layout, log)) = ranks::part() {
        let layout = layout.parse().map_err(anyhow::Error::msg)?;
        return run_rank(&training(arguments, &layout), &log);
    }
    let flags = &arguments.training.parallel;
    ensure!(
        flags.num_layers_per_virtual_pipeline_stage.is_none(),
        "--num-layers-per-virtual-pipeline-stage is not for layouts: give the chunks of a stage as vN in --layouts"
    );
    flags.stages.check_layouts(&arguments.layouts)?;
    arguments.training.deepspeed.check_not_given("bench layouts")?;
    refuse_launcher("bench layouts")?;
    let (rounds, steps) = (arguments.rounds, arguments.steps);
    let layouts = [&[Layout::ONE_RANK], &arguments.layouts[..]].concat();
    for layout in &layouts {
        training(arguments, layout)
            .validate()
            .with_context(|| format!("layout {layout} does not fit"))?;
    }
    let measured = in_turn(rounds, layouts.len(), |round, index| {
        let row = launch(&layouts[index], steps)?;
        println!("round {round}: {row}");
        Ok(row)
    })?;
    let rows = measured
        .iter()
        .map(|own| Row::median(own).number("ratio to one rank", ratio(own, &measured[0], "tokens/s")));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!("\nmedians of {rounds} rounds of {steps} steps on {cores} cores");
    println!("{}", table(&rows.collect::<Vec<_>>()));
    Ok(())
}

/// Runs one layout as a job of ranks, and returns the medians of its steps.
fn launch(layout: &Layout, steps: usize) -> anyhow::Result<Row> {
    let counted = ranks::train(layout.world_size(), &layout.to_string(), steps)?;
    let peak = counted.iter().map(|m| m.peak_memory_bytes).max().unwrap_or(0);
    Ok(Row::default()
        .text("layout", layout.title())
        .number("ranks", layout.world_size() as f64)
        .number(
            "tokens/s",
            median(counted.iter().map(|m| m.tokens_per_second).collect()),
        )
        .bytes("peak memory per rank", peak as f64)
        .bytes("sent per step", counted[0].communication_bytes as f64))
}

/// The flags of a run in one layout.
fn training(arguments: &Arguments, layout: &Layout) -> TrainingArguments {
    let mut training = arguments.training.clone();
    let flags = &arguments.training.parallel;
    training.parallel = ParallelArguments::of_layout(layout, &flags.stages, &flags.communication);
    training.optimization.train_iters = Some((WARM_UP_STEPS + arguments.steps) as u64);
    training
}
