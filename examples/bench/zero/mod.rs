//! Measures step time and memory of the stages of ZeRO on data-parallel ranks, in turn with PyTorch over Gloo.
//!
//! ```text
//! cargo run --release --example bench -- zero
//! cargo run --release --example bench -- zero --python PATH --num-layers 6 --hidden-size 384 --num-attention-heads 6
//! ```
//!
//! A round runs every variant once, each as a job of its own: the stages of `--stages`, and stages 2 and 3 also without
//! overlap of communication and computation. All jobs have the same model, batch and cores, which are divided among the
//! ranks. With `--python` a stage's peer in PyTorch, of the same sizes and threads, is among them, before the stage.
//! Machines drift: medians over rounds are printed, and the ratio is the median of the ratios within rounds.
//!
//! [`variant`] has the stages and their peers, [`theirs`] a job of PyTorch's, [`refusals`] the flags that do not fit.

mod refusals;
mod theirs;
mod variant;

use std::path::PathBuf;

use anyhow::Context as _;
use burn_megatron::training::memory::keep_freed_memory;
use clap::Args;
use examples::arguments::{ParallelArguments, TextSource, TrainingArguments};
use examples::figures::median;
use examples::launching::refuse_launcher;
use examples::layout::Layout;
use examples::measured_run::{WARM_UP_STEPS, run_rank};

use crate::measure::{count, in_turn, ratio};
use crate::ranks;
use crate::table::{Row, table};
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
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = count())]
    rounds: usize,
    /// Steps that count in each run
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = count())]
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
}

/// Meaning of the columns.
const LEGEND: &str = "\
peak memory:  of the rank with the largest in the counted steps. Ours is what was allocated at once, with the text; a
              buffer that ranks share counts for the rank that owns it. PyTorch's is what was in memory, less pages of
              files and what was there before the model was made, of ranks whose allocator gives back what is freed
sent:         what all ranks together sent in a step
PyTorch:      DistributedDataParallel, ZeroRedundancyOptimizer around it, and FSDP2 (fully_shard) with
              reshard_after_forward=False and True, each layer a unit, over Gloo on loopback
ratio:        our step's time by that of PyTorch's in the same round; below 1 ours is faster";

/// Subjects that are measured in turn.
#[derive(Clone, Copy, PartialEq)]
enum Subject {
    /// The peer of a stage.
    Peer(usize),
    Ours(Variant),
}

/// Runs every variant in turn and prints the table; or trains as a rank of one.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    keep_freed_memory();
    let variants = Variant::of_stages(&arguments.stages)?;
    if let Some((part, log)) = ranks::part() {
        let variant = variants.into_iter().find(|variant| variant.to_string() == part);
        return run_rank(&training(arguments, variant.context("no such variant")?)?, &log);
    }
    refuse_launcher("bench zero")?;
    let (rounds, steps) = (arguments.rounds, arguments.steps);
    refusals::check(&arguments.training)?;
    for &variant in &variants {
        training(arguments, variant)?
            .validate()
            .with_context(|| format!("{variant} does not fit"))?;
    }
    let peer = arguments
        .python
        .as_deref()
        .map(|python| theirs::peer(arguments, python));
    let peer = peer.transpose()?;
    let mut subjects = Vec::new();
    for &variant in &variants {
        // Without overlap the peer is that of the same stage.
        let theirs = Subject::Peer(variant.stage.into());
        if peer.is_some() && !subjects.contains(&theirs) {
            subjects.push(theirs);
        }
        subjects.push(Subject::Ours(variant));
    }
    let measured = in_turn(rounds, subjects.len(), |round, index| {
        let row = match (subjects[index], &peer) {
            (Subject::Peer(stage), Some(peer)) => theirs::launch(peer, stage)?,
            (Subject::Peer(_), None) => unreachable!("there are no peers"),
            (Subject::Ours(variant), _) => launch(arguments, variant)?,
        };
        println!("round {round}: {row}");
        Ok(row)
    })?;
    let rounds_of = |subject| {
        let place = subjects.iter().position(|other| *other == subject);
        place.map_or(&[][..], |place| &measured[place])
    };
    let rows = variants.iter().map(|&variant| {
        let own = rounds_of(Subject::Ours(variant));
        match rounds_of(Subject::Peer(variant.stage.into())) {
            [] => Row::median(own),
            theirs => Row::median(own)
                .and(theirs::columns(&Row::median(theirs)))
                .number("ratio", ratio(own, theirs, "step")),
        }
    });
    let world_size = world_size(&arguments.training);
    println!(
        "\nmedians of {rounds} rounds of {steps} steps, {world_size} ranks, {} per rank\n{}\n\n{LEGEND}",
        match threads_per_rank(world_size)? {
            1 => "1 thread".to_owned(),
            threads => format!("{threads} threads"),
        },
        table(&rows.collect::<Vec<_>>()),
    );
    Ok(())
}

/// Runs a variant as a job of ranks, and returns what they measured.
fn launch(arguments: &Arguments, variant: Variant) -> anyhow::Result<Row> {
    let counted = ranks::train(world_size(&arguments.training), &variant.to_string(), arguments.steps)?;
    let last = &counted[counted.len() - 1];
    Ok(Row::default()
        .text("variant", variant)
        .seconds(
            "step",
            median(counted.iter().map(|metrics| metrics.step_seconds).collect()),
        )
        .bytes("peak memory", last.peak_memory_bytes as f64)
        .bytes("sent", last.communication_bytes as f64)
        .number("loss", last.loss))
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
