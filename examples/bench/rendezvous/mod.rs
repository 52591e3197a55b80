//! Measures how a job of many ranks comes together, makes its groups, makes small calls, and learns of a death.
//!
//! ```text
//! cargo run --release --example bench -- rendezvous --ranks 16,32,64 --plot rendezvous.svg
//! cargo run --release --example bench -- rendezvous --ranks 64,256,1024,4096 --rounds 1
//! ```
//!
//! For each size it starts a store in a process of its own, and the ranks in others: each rank is a thread with a
//! [`World`](burn_megatron::launch::World) of its own, which speaks the whole protocol over sockets of its own on
//! 127.0.0.1: handshakes, registration, heartbeats, groups. The last rank has a process to itself, which is killed
//! in the end. Each round of a size is a job of its own; figures are medians over the rounds. Of a size that cannot be
//! done there is what was measured before the error, and the error; the next size follows.
//!
//! As in a real job: the messages, the sockets, the threads of a rank, and the layout's groups with their engines.
//! Ranks are said to be on nodes of `--ranks-per-node`, so that groups that span nodes go over TCP. Unlike one: all
//! nodes share the processors of this machine, and loopback has no latency, so the times are those of the work of all
//! ranks together; ranks of a process share its limit of descriptors, and its memory is divided among them; the store
//! has a process to itself, to which those of the ranks give way, where a real one is the launcher or rank 0.
//! Heartbeats are among the store's messages.
//!
//! [`job`] runs one job; [`process`] starts its processes, which are [`store`] and [`ranks`], and asks them over
//! [`messages`]; [`child`] is their end of that; [`system`] is what Linux says of a process. [`figures`] has what is
//! measured and the law that it follows, [`layout`] the axes, [`proofs`] the price of a handshake, [`plot`] the curve.

mod child;
mod figures;
mod job;
mod layout;
mod messages;
mod plot;
mod process;
mod proofs;
mod ranks;
mod store;
mod system;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::Args;
use examples::launching::{refuse_launcher, show_warnings};

use figures::Row;
use job::{Death, JobConfig};
use layout::Layout;

/// The fewest ranks of a job: one is killed, and the others form groups.
const LEAST_RANKS: usize = 4;
/// The most: what the store's own limit of connections and the threads of one machine leave far above.
const MOST_RANKS: usize = 1 << 16;

/// Measure how the ranks of a job meet, make groups and small calls, and learn of a death
#[derive(Args)]
#[command(after_help = NEEDS)]
pub struct Arguments {
    /// Ranks of each job
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [64, 256, 1024, 4096])]
    ranks: Vec<usize>,
    /// Jobs of each size; medians over them are printed
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Tensor-parallel ranks [default: a divisor of --ranks, 8 at most]
    #[arg(long, value_name = "N")]
    tensor_model_parallel_size: Option<usize>,
    /// Stages [default: a divisor of the rest, its square root at most]
    #[arg(long, value_name = "N")]
    pipeline_model_parallel_size: Option<usize>,
    /// Ranks that are on one node
    #[arg(long, value_name = "N", default_value_t = 8)]
    ranks_per_node: usize,
    /// Ranks that share a process of this program
    #[arg(long, value_name = "N", default_value_t = 16)]
    ranks_per_process: usize,
    /// Barriers and all-reduces that are timed, at most
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    calls: u32,
    /// What dies in the end
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Death::Rank)]
    death: Death,
    /// How long the barriers, and the all-reduces, of a job may take; fewer are made where one takes long
    #[arg(long, value_name = "SECONDS", default_value_t = 20.0)]
    call_secs: f64,
    /// The longest that each step of a job may take, and that a rank waits for another
    #[arg(long, value_name = "SECONDS", default_value_t = 120.0)]
    timeout_secs: f64,
    /// Draw the times against the ranks, with the laws, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// A process that this program has started: what it is to be comes over its stdin
    #[arg(long, hide = true)]
    child: bool,
}

const NEEDS: &str = "\
What it needs, for N ranks:
  descriptors  some 12 of a process for each of its ranks, 2 N of the store's (see `ulimit -Hn`)
  threads      5 for each rank
  memory       0.3 MiB for each rank at 1024, 0.6 MiB at 4096;
               a size at which less than a sixth of the machine's memory is left is given up
  processes    one for each --ranks-per-process ranks, one for the last rank, one for the store

Exit status: 0 if every size was measured, 1 if one could not be (its error follows the table),
2 for wrong flags.";

/// Measures every size and prints what was found.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if arguments.child {
        return Ok(child::serve());
    }
    show_warnings();
    refuse_launcher("bench rendezvous")?;
    let jobs = match configurations(arguments) {
        Ok(jobs) => jobs,
        Err(error) => {
            eprintln!("error: {error}");
            return Ok(ExitCode::from(2));
        }
    };
    let proof_secs = proofs::seconds_of_one();
    eprintln!("one HMAC of a handshake takes {:.2} µs", 1e6 * proof_secs);
    let mut rows = Vec::new();
    for job in &jobs {
        let row = run_rounds(job, arguments.rounds, proof_secs);
        println!("{row}\n");
        rows.push(row);
    }
    println!("{}", figures::table(&rows));
    if let Some(path) = &arguments.plot {
        let picture = plot::draw(&rows)?;
        std::fs::write(path, picture).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let failed = rows.iter().filter(|row| row.error.is_some()).count();
    ensure!(failed == 0, "{failed} of {} sizes could not be measured", rows.len());
    Ok(ExitCode::SUCCESS)
}

/// Returns the jobs that the flags ask for.
fn configurations(arguments: &Arguments) -> anyhow::Result<Vec<JobConfig>> {
    for (flag, value) in [
        ("--ranks-per-node", arguments.ranks_per_node),
        ("--ranks-per-process", arguments.ranks_per_process),
    ] {
        ensure!(value > 0, "{flag} must be at least 1, got 0");
    }
    for (flag, value) in [
        ("--call-secs", arguments.call_secs),
        ("--timeout-secs", arguments.timeout_secs),
    ] {
        ensure!(
            value > 0.0 && value <= 86400.0,
            "{flag} must be above 0 and at most 86400, got {value}"
        );
    }
    let job = |&ranks: &usize| {
        ensure!(
            (LEAST_RANKS..=MOST_RANKS).contains(&ranks),
            "--ranks must be from {LEAST_RANKS} to {MOST_RANKS}, got {ranks}"
        );
        Ok(JobConfig {
            ranks,
            layout: Layout::new(
                ranks,
                arguments.tensor_model_parallel_size,
                arguments.pipeline_model_parallel_size,
            )?,
            ranks_per_node: arguments.ranks_per_node,
            ranks_per_process: arguments.ranks_per_process,
            calls: arguments.calls,
            call_secs: arguments.call_secs,
            death: arguments.death,
            timeout_secs: arguments.timeout_secs,
        })
    };
    arguments.ranks.iter().map(job).collect()
}

/// Runs the jobs of one size, until one cannot be done.
fn run_rounds(job: &JobConfig, rounds: u32, proof_secs: f64) -> Row {
    let mut measured = Vec::new();
    let mut error = None;
    for round in 1..=rounds {
        eprintln!("{} ranks, {}: round {round} of {rounds}", job.ranks, job.layout);
        let (figures, failure) = job::run(job, proof_secs);
        measured.push(figures);
        error = failure.map(|failure| format!("{failure:#}"));
        if error.is_some() {
            break;
        }
    }
    Row::new(job.ranks, job.layout, &measured, error)
}
