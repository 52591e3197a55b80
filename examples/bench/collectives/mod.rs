//! Measures the collectives of the host engines, alone or in turn with a peer program.
//!
//! ```text
//! cargo run --release --example bench -- collectives --operations all_reduce --world-sizes 2 --table
//! cargo run --release --example bench -- collectives --sizes-kib 4,65536 --operations all_reduce --rounds 3 \
//!     --against 'python3 gloo_allreduce.py 2'
//! ```
//!
//! Every pair of engine and world size is a job of its own, whose ranks this program starts. Results are JSON lines on
//! stdout (see [`Measurement`]); with `--table` an aligned table follows, with `--against` the ratios to the peer.
//! Where both `copy` and `all_reduce` were measured over shared memory, the all-reduce is compared with the time that
//! its copies alone take on this machine.
//!
//! `worker` is what a rank does, `report` what is printed at the end.

mod report;
mod worker;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use burn_megatron::collectives::{ElementType, EngineChoice};
use burn_megatron::launch::{Launcher, Prefix};
use clap::{Args, ValueEnum};
use examples::launching::{refuse_launcher, show_warnings};
use report::{Measurement, Source};

/// Measure the collectives of the host engines
#[derive(Args)]
pub struct Arguments {
    /// What to measure
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_values_t = Benchmark::ALL)]
    operations: Vec<Benchmark>,
    /// Sizes of the message, in KiB
    #[arg(
        long, value_name = "KIB,...", value_delimiter = ',',
        default_values_t = [1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144]
    )]
    sizes_kib: Vec<usize>,
    /// Leave out larger sizes
    #[arg(long, value_name = "BYTES", default_value_t = usize::MAX, hide_default_value = true)]
    max_bytes: usize,
    /// Ranks of each job
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "2,4,8")]
    world_sizes: Vec<usize>,
    /// Engines: shared-memory, tcp
    #[arg(
        long, value_name = "NAME,...", value_delimiter = ',', value_parser = engine,
        default_value = "shared-memory,tcp"
    )]
    engines: Vec<EngineChoice>,
    /// Type of the elements: f32, f64, f16, bf16, i32, i64, u8
    #[arg(long, value_name = "TYPE", value_parser = element_type, default_value = "f32")]
    element_type: ElementType,
    /// Calls per size that count [default: those that take 0.3 s, from 5 to 5000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repeats: Option<u32>,
    /// How often everything is measured; medians over the rounds are compared
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Print an aligned table at the end
    #[arg(long)]
    table: bool,
    /// A shell command that prints such JSON lines, run in each round after our jobs
    #[arg(long, value_name = "COMMAND")]
    against: Option<String>,
    /// Where rank 0 writes its lines, set for the ranks that this program starts
    #[arg(long, hide = true)]
    worker_log: Option<PathBuf>,
}

/// What is measured, by its name in the JSON lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Benchmark {
    /// The sum, on every rank
    AllReduce,
    /// The same in a buffer that the engine may make visible to all ranks
    AllReduceShared,
    /// Every rank's shard, on every rank
    AllGather,
    /// A shard of the sum
    ReduceScatter,
    /// One rank's buffer, the root another rank in each call
    Broadcast,
    /// A message from the even to the odd rank of each pair and back; the time is that of one way
    SendRecv,
    /// No data
    Barrier,
    /// No communication: every rank copies the message to memory of its own, all at once
    Copy,
}

impl Benchmark {
    const ALL: [Benchmark; 8] = [
        Benchmark::AllReduce,
        Benchmark::AllReduceShared,
        Benchmark::AllGather,
        Benchmark::ReduceScatter,
        Benchmark::Broadcast,
        Benchmark::SendRecv,
        Benchmark::Barrier,
        Benchmark::Copy,
    ];

    /// Returns the bytes that pass a rank's link in the best algorithm, per byte of the message.
    ///
    /// The factors are those of nccl-tests, so that bus bandwidths compare across operations and world sizes.
    fn bus_factor(self, world: usize) -> f64 {
        let others = (world - 1) as f64 / world as f64;
        match self {
            Benchmark::AllReduce | Benchmark::AllReduceShared => 2.0 * others,
            Benchmark::AllGather | Benchmark::ReduceScatter => others,
            Benchmark::Broadcast | Benchmark::SendRecv | Benchmark::Copy => 1.0,
            Benchmark::Barrier => 0.0,
        }
    }
}

impl std::fmt::Display for Benchmark {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = self.to_possible_value().expect("no variant is skipped");
        formatter.pad(value.get_name())
    }
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    show_warnings();
    match &arguments.worker_log {
        Some(log) => worker::run_rank(arguments, log),
        None => measure(arguments),
    }
}

/// Runs every job, in each round the peer too, and prints.
fn measure(arguments: &Arguments) -> anyhow::Result<()> {
    refuse_launcher("bench collectives")?;
    if let Some(world) = arguments.world_sizes.iter().find(|world| **world < 2) {
        anyhow::bail!("--world-sizes {world}: expected at least 2 ranks, as one rank does not communicate");
    }
    let folder = tempfile::tempdir().context("cannot make a folder for results")?;
    let mut results: Vec<(Source, Measurement)> = Vec::new();
    for _ in 0..arguments.rounds {
        for &world in &arguments.world_sizes {
            for &engine in &arguments.engines {
                let measured = run_job(engine, world, folder.path())?;
                results.extend(show(Source::Ours, measured)?);
            }
        }
        if let Some(command) = &arguments.against {
            results.extend(show(Source::Peer, run_peer(command)?)?);
        }
    }
    if arguments.table {
        println!("\n{}", report::table(&results));
    }
    if arguments.against.is_some() {
        println!("\n{}", report::ratios(&results));
    }
    if let Some(floors) = report::floors(&results) {
        println!("\n{floors}");
    }
    Ok(())
}

/// Prints measurements as JSON lines and says where they came from.
fn show(source: Source, measured: Vec<Measurement>) -> anyhow::Result<Vec<(Source, Measurement)>> {
    let mut stdout = std::io::stdout().lock();
    for measurement in &measured {
        writeln!(stdout, "{}", serde_json::to_string(measurement)?).context("cannot write the results")?;
    }
    Ok(measured.into_iter().map(|measurement| (source, measurement)).collect())
}

/// Runs one job of `world` ranks and returns what its rank 0 measured.
fn run_job(engine: EngineChoice, world: usize, folder: &Path) -> anyhow::Result<Vec<Measurement>> {
    let log = folder.join("results.jsonl");
    let mut rank_arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    rank_arguments.extend(["--worker-log".into(), log.clone().into()]);
    let ended = Launcher::new(world)
        .arguments(rank_arguments)
        .environment(worker::ENGINE_VARIABLE, engine.to_string())
        .prefix(Prefix::AllButRankZero)
        .run()?;
    ensure!(ended.is_success(), "the job of {world} ranks over {engine} failed");
    let text = std::fs::read_to_string(&log).with_context(|| format!("cannot read {}", log.display()))?;
    parse(&text).context("rank 0 wrote something else than results")
}

/// Runs the peer program and returns the measurements among the lines that it prints.
fn run_peer(command: &str) -> anyhow::Result<Vec<Measurement>> {
    let output = Command::new("sh")
        .args(["-c", command])
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {command:?}"))?;
    let text = String::from_utf8(output.stdout).with_context(|| format!("{command:?} printed no text"))?;
    let measured = parse(&text).with_context(|| format!("{command:?} printed JSON that is no measurement"))?;
    ensure!(
        !measured.is_empty(),
        "{command:?} printed no measurement ({})",
        output.status
    );
    // PyTorch, for one, may abort after its last line.
    if !output.status.success() {
        eprintln!(
            "warning: {command:?} ended with {} after it printed results",
            output.status
        );
    }
    Ok(measured)
}

/// Reads the lines that are JSON objects; programs also print warnings.
fn parse(text: &str) -> serde_json::Result<Vec<Measurement>> {
    text.lines()
        .filter(|line| line.starts_with('{'))
        .map(serde_json::from_str)
        .collect()
}

fn engine(text: &str) -> Result<EngineChoice, String> {
    named(&[EngineChoice::SharedMemory, EngineChoice::Tcp], text)
}

fn element_type(text: &str) -> Result<ElementType, String> {
    named(ElementType::ALL, text)
}

/// Returns the one of `values` that is called `text`.
fn named<T: std::fmt::Display + Copy>(values: &[T], text: &str) -> Result<T, String> {
    let names = values.iter().map(T::to_string).collect::<Vec<_>>().join(", ");
    let found = values.iter().copied().find(|value| value.to_string() == text);
    found.ok_or_else(|| format!("expected one of {names}"))
}
