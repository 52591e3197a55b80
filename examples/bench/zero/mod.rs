//! Measures step time and memory of the stages of ZeRO on data-parallel ranks, in turn with PyTorch over Gloo.
//!
//! ```text
//! cargo run --release --example bench -- zero
//! cargo run --release --example bench -- zero --python PATH --num-layers 6 --hidden-size 384 --num-attention-heads 6
//! ```
//!
//! A round runs every variant once, each as a job of its own: the stages of `--stages`, and stages 2 and 3 also without
//! overlap of communication and computation. All jobs have the same model, batch and cores, which are divided among the
//! ranks. With `--python` a stage's peer in PyTorch, of the same sizes and threads, runs right before the stage.
//! Machines drift: medians over rounds are printed, and the ratio is the median of the ratios within rounds.
//!
//! [`variant`] names what is measured, [`ours`] is a job of ours, [`theirs`] one of PyTorch's, [`table`] what is
//! printed.

mod ours;
mod refusals;
mod table;
mod theirs;
mod variant;

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use burn_megatron::training::memory::keep_freed_memory;
use clap::Args;
use examples::arguments::{ParallelArguments, TextSource, TrainingArguments};
use examples::launching::refuse_launcher;
use examples::layout::Layout;
use examples::measured_run::{self, WARM_UP_STEPS};
use serde::{Deserialize, Serialize};

use table::{Measured, Row};
use theirs::Peer;
use variant::Variant;

/// The ranks, if no flag says how many.
const WORLD_SIZE: usize = 2;
/// The text that each rank holds, if no flag says how much or which.
const TEXT_BYTES: u64 = 1 << 20;

/// Measure step time and memory of the stages of ZeRO.
#[derive(Args, Clone)]
pub struct Arguments {
    /// Stages to measure: 0 shares out nothing, 1 the optimizer's state, 2 the gradients too, 3 the parameters too
    #[arg(
        long, value_name = "N,...", value_delimiter = ',', default_values_t = [0, 1, 2, 3],
        value_parser = clap::value_parser!(u8).range(0..=3)
    )]
    stages: Vec<u8>,
    /// How often each variant is measured
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// Steps that count in each run
    #[arg(long, value_name = "N", default_value_t = 12)]
    steps: usize,
    /// An interpreter with PyTorch, to measure the stages' peers too
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// The program that trains in PyTorch
    #[arg(
        long, value_name = "PATH", requires = "python",
        default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/bench/zero/zero_pytorch.py")
    )]
    script: PathBuf,
    /// The longest time of a run in PyTorch, which is ended then; ours ends by --distributed-timeout-minutes
    #[arg(
        long, value_name = "SECONDS", default_value_t = 600,
        value_parser = clap::value_parser!(u64).range(1..=86400)
    )]
    peer_timeout_secs: u64,
    #[command(flatten)]
    training: TrainingArguments,
    /// The variant that this rank is part of, set for the ranks that this program starts
    #[arg(long, hide = true, requires = "worker_log")]
    worker_variant: Option<Variant>,
    /// Where rank 0 writes its metrics, likewise
    #[arg(long, hide = true, requires = "worker_variant")]
    worker_log: Option<PathBuf>,
}

/// What a run measured, of ours or of PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Figures {
    /// The median over the counted steps of the slowest rank's time.
    step_seconds: f64,
    /// The most bytes that a rank had: ours allocated, PyTorch in memory, less what it had before it made the model.
    peak_bytes: u64,
    /// What all ranks together sent in a step; PyTorch does not tell.
    sent_bytes: Option<u64>,
    /// The last step's.
    loss: f64,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    keep_freed_memory();
    match (arguments.worker_variant, &arguments.worker_log) {
        (Some(variant), Some(file)) => {
            training(arguments, variant).and_then(|training| measured_run::run_rank(&training, file))
        }
        _ => measure(arguments),
    }
}

/// Runs every variant in turn and prints the table.
fn measure(arguments: &Arguments) -> anyhow::Result<()> {
    refuse_launcher("bench zero")?;
    ensure!(
        arguments.rounds > 0 && arguments.steps > 0,
        "--rounds and --steps must be at least 1, got {} and {}",
        arguments.rounds,
        arguments.steps
    );
    refusals::check(&arguments.training)?;
    let variants = Variant::of_stages(&arguments.stages)?;
    for &variant in &variants {
        training(arguments, variant)?
            .validate()
            .with_context(|| format!("{variant} does not fit"))?;
    }
    let peer = arguments.python.as_deref().map(|python| Peer::new(arguments, python));
    let peer = peer.transpose()?;
    let folder = tempfile::tempdir().context("cannot make a folder for figures")?;
    let mut rounds: Vec<Vec<Measured>> = Vec::new();
    for round in 1..=arguments.rounds {
        let mut measured: Vec<Measured> = Vec::new();
        for &variant in &variants {
            // Without overlap the peer is that of the same stage.
            let same = measured.iter().find(|earlier| earlier.variant.stage == variant.stage);
            let theirs = match (&peer, same) {
                (_, Some(earlier)) => earlier.theirs,
                (Some(peer), None) => Some(peer.run(variant.peer(), folder.path())?),
                (None, None) => None,
            };
            let ours = ours::launch(arguments, variant, folder.path())?;
            let own = Measured { variant, ours, theirs };
            println!("round {round}: {own}");
            measured.push(own);
        }
        rounds.push(measured);
    }
    let world_size = world_size(&arguments.training);
    println!(
        "\nmedians of {} rounds of {} steps, {world_size} ranks, {} per rank\n{}\n\n{}",
        arguments.rounds,
        arguments.steps,
        match threads_per_rank(world_size)? {
            1 => "1 thread".to_owned(),
            threads => format!("{threads} threads"),
        },
        table::table(&Row::of_rounds(&rounds)),
        table::LEGEND
    );
    Ok(())
}

/// The flags of a run of one variant.
fn training(arguments: &Arguments, variant: Variant) -> anyhow::Result<TrainingArguments> {
    let mut training = arguments.training.clone();
    let layout = Layout {
        data_parallel_size: world_size(&training),
        ..Layout::ONE_RANK
    };
    let mut communication = training.parallel.communication.clone();
    communication.zero_stage = Some(variant.stage);
    communication.overlap_grad_reduce = variant.overlaps;
    communication.overlap_param_gather = variant.overlaps;
    training.parallel = ParallelArguments::of_layout(&layout, &training.parallel.stages, &communication);
    training.optimization.train_iters = Some((WARM_UP_STEPS + arguments.steps) as u64);
    if training.data.source()? == TextSource::CargoRegistry {
        // A rank holds its text in memory, which is measured.
        training.data.data_limit.get_or_insert(TEXT_BYTES);
    }
    Ok(training)
}

fn world_size(training: &TrainingArguments) -> usize {
    training.parallel.world_size.unwrap_or(WORLD_SIZE)
}

/// The threads that the launcher lets a rank compute on.
fn threads_per_rank(world_size: usize) -> anyhow::Result<usize> {
    const VARIABLE: &str = "RAYON_NUM_THREADS";
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let Some(given) = std::env::var_os(VARIABLE) else {
        return Ok((cores / world_size).max(1));
    };
    let number = given.to_str().and_then(|text| text.parse().ok());
    number
        .filter(|threads| *threads > 0)
        .with_context(|| format!("{VARIABLE} must be a number of threads above 0, got {given:?}"))
}
