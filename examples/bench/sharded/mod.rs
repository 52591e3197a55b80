//! Measures a plain burn model that is placed by a plan, against the same model without, and against the layers of
//! `burn_megatron::tensor_parallel`.
//!
//! ```text
//! cargo run --release --example bench -- sharded
//! cargo run --release --example bench -- sharded --layouts tp2,tp2sp --rounds 20 --json
//! cargo run --release --example bench -- sharded --models fused,fused-placed,fused-wrapped
//! ```
//!
//! On one rank: `PlainGpt` on `Flex`, on `Sharded<Flex>` without a mesh and with a mesh of one rank, and the
//! bundled GPT. In each layout of two ranks: `PlainGpt` by plan, the same in `DistributedDataParallel`, and the bundled
//! GPT, of burn's operations and of fused ones; and `FusedGpt`, a model of fused operations, by plan. All have the same
//! sizes, tokens and AdamW. The ranks have one model of each kind and take a step of each in turn; machines drift, so a
//! step is compared with that of the reference in the same round. Medians are printed, and that of the ratios of the
//! first rank's processor time, which other work on the machine changes less.
//!
//! Memory is measured before that, with one model at a time: the most bytes that were allocated in its second step.
//!
//! [`job`] is what a rank does, [`subject`] the models.

mod job;
mod plain;
mod subject;

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use burn_megatron::launch::{JoinConfig, Launcher};
use burn_megatron::training::memory::keep_freed_memory;
use clap::{Args, ValueEnum};
use examples::figures::{bytes, median};
use examples::launching::{refuse_launcher, run_own_rank};
use serde::Serialize;

use job::{Collectives, Figures};
use subject::Kind;

/// Measure a model that a plan makes parallel
#[derive(Args)]
pub struct Arguments {
    /// Layouts to measure
    #[arg(
        long,
        value_enum,
        value_name = "LAYOUT,...",
        value_delimiter = ',',
        default_value = "one,tp2,tp2sp,dp2,fsdp2"
    )]
    layouts: Vec<Layout>,
    /// Models to measure in each layout that has them [default: all]; the first of a layout's is its reference
    #[arg(long, value_enum, value_name = "MODEL,...", value_delimiter = ',')]
    models: Vec<Kind>,
    /// Rounds, each a step of every model
    #[arg(long, value_name = "N", default_value_t = 15)]
    rounds: usize,
    /// Print a JSON object per row instead of the table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    problem: Problem,
    /// The layout that this rank is part of, set for the ranks that this program starts
    #[arg(long, hide = true, requires = "worker_folder")]
    worker_layout: Option<Layout>,
    /// Where the ranks write their figures, likewise
    #[arg(long, hide = true, requires = "worker_layout")]
    worker_folder: Option<PathBuf>,
}

/// The sizes of the model and of a step.
#[derive(Args, Clone, Debug)]
struct Problem {
    /// Transformer layers
    #[arg(long, value_name = "N", default_value_t = 6)]
    num_layers: usize,
    /// Size of each token
    #[arg(long, value_name = "N", default_value_t = 384)]
    hidden_size: usize,
    /// Attention heads
    #[arg(long, value_name = "N", default_value_t = 6)]
    num_attention_heads: usize,
    /// Tokens per sample
    #[arg(long, value_name = "N", default_value_t = 256)]
    seq_length: usize,
    /// Samples per step, over all ranks
    #[arg(long, value_name = "N", default_value_t = 4)]
    global_batch_size: usize,
    /// Tokens of the vocabulary
    #[arg(long, value_name = "N", default_value_t = 8192)]
    vocab_size: usize,
}

impl Problem {
    fn tokens(&self) -> usize {
        self.global_batch_size * self.seq_length
    }
}

/// How the ranks are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
enum Layout {
    /// One rank
    One,
    /// Two tensor-parallel ranks
    Tp2,
    /// The same with sequence parallelism
    Tp2sp,
    /// Two data-parallel ranks
    Dp2,
    /// The same with parameters, gradients and moments cut; with explicit layers only the moments are
    Fsdp2,
}

impl Layout {
    fn world_size(self) -> usize {
        if self == Layout::One { 1 } else { 2 }
    }

    fn tensor_parallel_size(self) -> usize {
        if matches!(self, Layout::Tp2 | Layout::Tp2sp) {
            2
        } else {
            1
        }
    }

    /// The models that are measured; the first is the reference.
    fn kinds(self, arguments: &Arguments) -> Vec<Kind> {
        let all = self.all_kinds().iter().copied();
        all.filter(|kind| arguments.models.is_empty() || arguments.models.contains(kind))
            .collect()
    }

    fn all_kinds(self) -> &'static [Kind] {
        match self {
            // The last tells what of a difference in the other layouts is the model's.
            Layout::One => &[
                Kind::Plain,
                Kind::Unplaced,
                Kind::Placed,
                Kind::Explicit,
                Kind::Fused,
                Kind::FusedPlaced,
            ],
            _ => &[
                Kind::Explicit,
                Kind::Placed,
                Kind::Wrapped,
                Kind::Fused,
                Kind::FusedPlaced,
                Kind::FusedWrapped,
            ],
        }
    }
}

/// A row of the table.
#[derive(Serialize)]
struct Row {
    layout: Layout,
    model: Kind,
    step_seconds: f64,
    tokens_per_second: f64,
    /// Of the speed to that of the layout's reference, in the same round.
    ratio: f64,
    /// The same of the first rank's processor time, which other work on the machine changes less.
    processor_ratio: f64,
    rounds: usize,
    parameter_bytes: Vec<usize>,
    peak_memory_bytes: Vec<usize>,
    sent_bytes_per_step: u64,
    collectives: Vec<Collectives>,
    loss: f64,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    keep_freed_memory();
    match (arguments.worker_layout, &arguments.worker_folder) {
        (Some(layout), Some(folder)) => run_own_rank("--worker-folder", &JoinConfig::default(), |world| {
            job::run(world, layout, arguments, folder)
        }),
        _ => measure(arguments),
    }
}

/// Runs every layout and prints its rows.
fn measure(arguments: &Arguments) -> anyhow::Result<()> {
    refuse_launcher("bench sharded")?;
    ensure!(
        arguments.rounds > 0,
        "--rounds must be at least 1, got {}",
        arguments.rounds
    );
    if !arguments.json {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        println!("medians of {} rounds on {cores} cores", arguments.rounds);
        println!(
            "layout  model         step ms  tokens/s  ratio  processor  parameters  peak memory  sent     collectives"
        );
    }
    for &layout in &arguments.layouts {
        for row in launch(layout, arguments)? {
            if arguments.json {
                println!("{}", serde_json::to_string(&row)?);
            } else {
                print(&row);
            }
        }
    }
    Ok(())
}

/// Runs one layout as a job of ranks.
fn launch(layout: Layout, arguments: &Arguments) -> anyhow::Result<Vec<Row>> {
    let kinds = layout.kinds(arguments);
    ensure!(
        !kinds.is_empty(),
        "no model of {:?} is measured in this layout, which has {:?}",
        arguments.models,
        layout.all_kinds()
    );
    let folder = tempfile::tempdir().context("cannot make a folder for figures")?;
    let name = layout.to_possible_value().context("no layout is hidden")?;
    let mut rank_arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    rank_arguments.extend([
        format!("--worker-layout={}", name.get_name()).into(),
        "--worker-folder".into(),
        folder.path().into(),
    ]);
    let summary = Launcher::new(layout.world_size()).arguments(rank_arguments).run()?;
    ensure!(summary.is_success(), "the run of {} failed", name.get_name());
    let ranks = (0..layout.world_size())
        .map(|rank| job::read(folder.path(), rank))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let rows = kinds.into_iter().enumerate().map(|(index, kind)| {
        let own: Vec<&Figures> = ranks.iter().map(|rank| &rank[index]).collect();
        row(arguments, layout, kind, &own, &ranks[0][0])
    });
    Ok(rows.collect())
}

/// The medians of a model's figures, one of each rank.
fn row(arguments: &Arguments, layout: Layout, model: Kind, own: &[&Figures], reference: &Figures) -> Row {
    let first = own[0];
    let step_seconds = median(first.step_seconds.clone());
    let ratio = |reference: &[f64], own: &[f64]| {
        let ratios = reference.iter().zip(own).map(|(reference, own)| reference / own);
        median(ratios.collect())
    };
    Row {
        layout,
        model,
        step_seconds,
        tokens_per_second: arguments.problem.tokens() as f64 / step_seconds,
        ratio: ratio(&reference.step_seconds, &first.step_seconds),
        processor_ratio: ratio(&reference.processor_seconds, &first.processor_seconds),
        rounds: arguments.rounds,
        parameter_bytes: own.iter().map(|figures| figures.parameter_bytes).collect(),
        peak_memory_bytes: own.iter().map(|figures| figures.peak_memory_bytes).collect(),
        sent_bytes_per_step: first.sent_bytes,
        collectives: first.collectives.clone(),
        loss: first.loss,
    }
}

fn print(row: &Row) {
    let largest = |figures: &[usize]| bytes(figures.iter().copied().max().unwrap_or(0) as u64);
    let collectives: Vec<String> = row.collectives.iter().map(ToString::to_string).collect();
    println!(
        "{:<6}  {:<12}  {:>7.1}  {:>8.0}  {:>5.3}  {:>9.3}  {:>10}  {:>11}  {:>9}  {}",
        format!("{:?}", row.layout).to_lowercase(),
        format!("{:?}", row.model).to_lowercase(),
        1e3 * row.step_seconds,
        row.tokens_per_second,
        row.ratio,
        row.processor_ratio,
        largest(&row.parameter_bytes),
        largest(&row.peak_memory_bytes),
        bytes(row.sent_bytes_per_step),
        collectives.join(", ")
    );
}
