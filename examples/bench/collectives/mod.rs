//! Measures the collectives, of host memory or between GPUs, alone or in turn with a peer program.
//!
//! ```text
//! cargo run --release --example bench -- collectives --operations all_reduce --world-sizes 2 --table
//! cargo run --release --example bench -- collectives --sizes-kib 4,65536 --operations all_reduce --rounds 3 \
//!     --against 'python3 gloo_allreduce.py 2'
//! cargo run --release --features nccl --example bench -- collectives --device cuda --world-sizes 2 --table
//! ```
//!
//! Every pair of engine and world size is a job of its own, whose ranks this program starts. Results are JSON lines on
//! stdout (see [`Measurement`]); with `--table` an aligned table follows, with `--against` the ratios to the peer.
//! Where both `copy` and `all_reduce` were measured over shared memory, the all-reduce is compared with the time that
//! its copies alone take on this machine.
//!
//! [`worker`] makes the calls on a rank, [`on_gpus`] those on tensors, [`report`] the tables at the end.

mod on_gpus;
mod report;
mod worker;

use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use burn_megatron::collectives::{ElementType, EngineChoice};
use burn_megatron::launch::{JoinConfig, Launcher, Prefix};
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args, ValueEnum};
use examples::arguments::{DeviceArguments, Dtype};
use examples::device::DeviceKind;
use examples::launching::{refuse_launcher, run_own_rank, show_warnings};
use report::Measurement;

use crate::measure::count;
use crate::ranks;

/// Engines of host memory.
const ENGINES: [&str; 2] = ["shared-memory", "tcp"];

/// Measure the collectives of the host engines, or those between GPUs
#[derive(Args)]
pub struct Arguments {
    /// Operations to measure [default: all that there are on the device]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_enum)]
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
    /// Ranks of each job; one does not communicate
    #[arg(
        long, value_name = "N,...", value_delimiter = ',', default_values_t = [2, 4, 8],
        value_parser = count().range(2..)
    )]
    world_sizes: Vec<usize>,
    /// Engines of host memory [default: shared-memory,tcp]; between GPUs it is NCCL in a build with it
    #[arg(
        long, value_name = "NAME,...", value_delimiter = ',',
        value_parser = PossibleValuesParser::new(ENGINES).try_map(|name| name.parse::<EngineChoice>())
    )]
    engines: Vec<EngineChoice>,
    /// Type of the elements
    #[arg(
        long, value_name = "TYPE", default_value = "f32",
        value_parser = PossibleValuesParser::new(ElementType::ALL.iter().map(|known| known.name())).map(element_type)
    )]
    element_type: ElementType,
    /// Calls per size that count [default: those that take 0.3 s, from 5 to 5000]
    #[arg(long, value_name = "N", value_parser = count())]
    repeats: Option<usize>,
    /// How often everything is measured; medians over the rounds are compared
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count())]
    rounds: usize,
    /// Print an aligned table at the end
    #[arg(long)]
    table: bool,
    /// A shell command that prints such JSON lines, run in each round after our jobs
    #[arg(long, value_name = "COMMAND")]
    against: Option<String>,
    #[command(flatten)]
    device: DeviceArguments,
}

impl Arguments {
    /// Returns the operations that are asked for, or all.
    ///
    /// # Errors
    /// When one has no form on tensors, and they are in a GPU's memory.
    fn operations(&self) -> anyhow::Result<Vec<Benchmark>> {
        let on_gpus = self.device.kind != DeviceKind::Cpu;
        let is_there = |benchmark: &Benchmark| !on_gpus || on_gpus::BENCHMARKS.contains(benchmark);
        if self.operations.is_empty() {
            let all = Benchmark::value_variants().iter().copied();
            return Ok(all.filter(is_there).collect());
        }
        if let Some(absent) = self.operations.iter().find(|benchmark| !is_there(benchmark)) {
            bail!("{} is not measured between GPUs", absent.name());
        }
        Ok(self.operations.clone())
    }
}

/// Operations, by their names in the JSON lines.
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
    fn name(self) -> String {
        let value = self.to_possible_value().expect("no variant is skipped");
        value.get_name().to_owned()
    }

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

/// Runs every job, in each round the peer too, and prints; or measures as a rank of a job.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    show_warnings();
    if let Some((engine, log)) = ranks::part() {
        return run_own_rank(ranks::PART, &JoinConfig::new(), |world| match arguments.device.kind {
            DeviceKind::Cpu => worker::run(arguments, engine.parse()?, world, &log),
            _ => on_gpus::run(arguments, world, &log),
        });
    }
    refuse_launcher("bench collectives")?;
    arguments.operations()?;
    let (dtype, engines) = match arguments.device.kind {
        // Elements of host memory are of any type.
        DeviceKind::Cpu if arguments.engines.is_empty() => (Dtype::F32, ENGINES.map(str::to_owned).into()),
        DeviceKind::Cpu => (
            Dtype::F32,
            arguments.engines.iter().map(EngineChoice::to_string).collect(),
        ),
        _ => {
            ensure!(arguments.engines.is_empty(), "--engines is for --device cpu");
            let part = "the collectives between GPUs".to_owned();
            (on_gpus::dtype(arguments.element_type)?, vec![part])
        }
    };
    arguments.device.validate(dtype)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..arguments.rounds {
        for &world in &arguments.world_sizes {
            for engine in &engines {
                let launcher = Launcher::new(world).prefix(Prefix::AllButRankZero);
                ours.extend(show(ranks::launch(launcher, engine)?)?);
            }
        }
        if let Some(command) = &arguments.against {
            theirs.extend(show(run_peer(command)?)?);
        }
    }
    let [ours, theirs] = [ours, theirs].map(|all| report::medians(&all));
    if arguments.table {
        println!("\n{}", report::table(ours.iter().chain(&theirs)));
    }
    if arguments.against.is_some() {
        println!("\n{}", report::ratios(&ours, &theirs));
    }
    if let Some(floors) = report::floors(&ours) {
        println!("\n{floors}");
    }
    Ok(())
}

/// Prints measurements as JSON lines.
fn show(measured: Vec<Measurement>) -> anyhow::Result<Vec<Measurement>> {
    for measurement in &measured {
        println!("{}", serde_json::to_string(measurement)?);
    }
    Ok(measured)
}

/// Runs the peer program and returns the measurements among the lines that it prints.
fn run_peer(command: &str) -> anyhow::Result<Vec<Measurement>> {
    let output = Command::new("sh")
        .args(["-c", command])
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {command:?}"))?;
    let text = String::from_utf8(output.stdout).with_context(|| format!("{command:?} printed no text"))?;
    // Programs also print warnings.
    let lines = text.lines().filter(|line| line.starts_with('{'));
    let measured = lines.map(serde_json::from_str).collect::<Result<Vec<_>, _>>();
    let measured = measured.with_context(|| format!("{command:?} printed JSON that is no measurement"))?;
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

fn element_type(name: String) -> ElementType {
    let known = ElementType::ALL.iter().find(|known| known.name() == name);
    *known.expect("the flag takes the names that there are")
}
