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
//! [`job`] measures one job and [`process`] starts its processes, which are [`child`]; [`size`] has the table and the
//! laws that its figures follow, [`plot`] the curves, and [`system`] reads the state of a process.

mod child;
mod job;
mod plot;
mod process;
mod size;
mod system;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use burn_megatron::topology::ParallelConfig;
use clap::Args;
use examples::launching::{refuse_launcher, show_warnings};

use crate::measure::{count, seconds};
use crate::ranks::PART;
use crate::table::Row;
use job::Death;
use size::Size;

/// Measure how the ranks of a job meet, make groups and small calls, and learn of a death
#[derive(Args)]
#[command(after_help = NEEDS)]
pub struct Arguments {
    /// Ranks of each job
    // At least one that is killed, and others that form groups; at most far more than the threads of one machine.
    #[arg(
        long, value_name = "N,...", value_delimiter = ',', default_values_t = [64, 256, 1024, 4096],
        value_parser = count().range(4..=1 << 16)
    )]
    ranks: Vec<usize>,
    /// Jobs of each size; medians over them are printed
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = count())]
    rounds: usize,
    /// Tensor-parallel ranks [default: a divisor of --ranks, 8 at most]
    #[arg(long, value_name = "N")]
    tensor_model_parallel_size: Option<usize>,
    /// Stages [default: a divisor of the rest, its square root at most]
    #[arg(long, value_name = "N")]
    pipeline_model_parallel_size: Option<usize>,
    /// Ranks that are on one node
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = count())]
    ranks_per_node: usize,
    /// Ranks that share a process of this program
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = count())]
    ranks_per_process: usize,
    /// Barriers and all-reduces that are timed, at most
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    calls: u32,
    /// What dies in the end
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Death::Rank)]
    death: Death,
    /// How long the barriers, and the all-reduces, of a job may take; fewer are made where one takes long
    #[arg(long, value_name = "SECONDS", default_value = "20", value_parser = seconds)]
    call_secs: Duration,
    /// The longest that each step of a job may take, and that a rank waits for another
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = seconds)]
    timeout_secs: Duration,
    /// Draw the times against the ranks, with the laws, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
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

impl Arguments {
    /// Returns the layout of some ranks.
    ///
    /// # Errors
    /// When a size that was given does not divide the ranks.
    fn layout(&self, ranks: usize) -> anyhow::Result<ParallelConfig> {
        layout(
            ranks,
            self.tensor_model_parallel_size,
            self.pipeline_model_parallel_size,
        )
    }
}

/// Measures every size and prints what was found; or does a process's part in a job.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    show_warnings();
    if let Ok(part) = std::env::var(PART) {
        return Ok(child::serve(arguments, serde_json::from_str(&part)?));
    }
    refuse_launcher("bench rendezvous")?;
    for &ranks in &arguments.ranks {
        arguments.layout(ranks)?;
    }
    let proof_secs = system::proof_seconds();
    eprintln!("one HMAC of a handshake takes {:.2} µs", 1e6 * proof_secs);
    let mut sizes = Vec::new();
    for &ranks in &arguments.ranks {
        let size = measure(arguments, ranks, proof_secs)?;
        println!("{}\n", size::table(std::slice::from_ref(&size)));
        sizes.push(size);
    }
    println!("{}", size::table(&sizes));
    if let Some(path) = &arguments.plot {
        let picture = plot::draw(&sizes)?;
        std::fs::write(path, picture).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let failed = sizes.iter().filter(|size| size.error.is_some()).count();
    if failed > 0 {
        eprintln!("error: {failed} of {} sizes could not be measured", sizes.len());
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs the jobs of one size, until one cannot be done.
fn measure(arguments: &Arguments, ranks: usize, proof_secs: f64) -> anyhow::Result<Size> {
    let grid = arguments.layout(ranks)?.grid(ranks)?;
    let [tensor, pipeline, data] = [
        grid.tensor_parallel_size(),
        grid.pipeline_parallel_size(),
        grid.data_parallel_size(),
    ];
    let axes = format!("{tensor}×{pipeline}×{data}");
    let (mut rows, mut error) = (Vec::new(), None);
    for round in 1..=arguments.rounds {
        eprintln!(
            "{ranks} ranks, tp × pp × dp {axes}: round {round} of {}",
            arguments.rounds
        );
        let (row, failure) = job::run(arguments, ranks, proof_secs);
        rows.push(row);
        if failure.is_some() {
            error = failure.map(|failure| format!("{failure:#}"));
            break;
        }
    }
    let row = Row::median(&rows);
    Ok(Size {
        ranks,
        axes,
        row,
        error,
    })
}

/// Returns the layout of `ranks` ranks with the sizes that were given, and usual ones of the others.
///
/// # Errors
/// When a size does not divide the ranks.
fn layout(ranks: usize, tensor: Option<usize>, pipeline: Option<usize>) -> anyhow::Result<ParallelConfig> {
    const MOST_TENSOR_RANKS: usize = 8;
    let largest_divisor = |number: usize, fits: &dyn Fn(usize) -> bool| {
        let divisors = (1..=number).filter(|size| number.is_multiple_of(*size));
        divisors.take_while(|size| fits(*size)).last().unwrap_or(1)
    };
    // About the cube root, so that at 64 ranks all axes are 4.
    let usual = |size: usize| size <= MOST_TENSOR_RANKS && size.pow(3) <= 2 * ranks;
    let tensor = tensor.unwrap_or_else(|| largest_divisor(ranks, &usual));
    let rest = if ranks.checked_rem(tensor) == Some(0) {
        ranks / tensor
    } else {
        1
    };
    let pipeline = pipeline.unwrap_or_else(|| largest_divisor(rest, &|size| size * size <= rest));
    let layout = ParallelConfig::new()
        .with_tensor_parallel_size(tensor)
        .with_pipeline_parallel_size(pipeline);
    let fits = layout.grid(ranks);
    fits.with_context(|| format!("--ranks {ranks} does not fit the model-parallel sizes"))?;
    Ok(layout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axes_of_usual_sizes_are_usual() {
        for (ranks, axes) in [
            (4, [2, 1]),
            (16, [2, 2]),
            (64, [4, 4]),
            (256, [8, 4]),
            (1024, [8, 8]),
            (4096, [8, 16]),
            (7, [1, 1]),
        ] {
            let layout = layout(ranks, None, None).unwrap();
            assert_eq!([layout.tensor_parallel_size, layout.pipeline_parallel_size], axes);
        }
    }

    #[test]
    fn a_size_that_does_not_divide_the_ranks_is_an_error_with_both() {
        let error = format!("{:#}", layout(64, Some(3), None).unwrap_err());
        assert!(error.contains("--ranks 64") && error.contains("got 64"), "{error}");
        assert!(layout(64, Some(0), None).is_err());
        let given = layout(64, Some(8), Some(2)).unwrap();
        assert_eq!([given.tensor_parallel_size, given.pipeline_parallel_size], [8, 2]);
    }
}
