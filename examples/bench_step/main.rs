//! Measures the bundled GPT's training step on the CPU against the same model in PyTorch, in turn.
//!
//! ```text
//! cargo run --release --example bench_step -- --python PATH
//! ```
//!
//! Both sides have the same sizes and threads, random tokens, AdamW and clipping, all in f32. Machines drift, so a step
//! is compared with the other side's of the same round; medians are printed. `--by-operation` measures the parts of our
//! step one by one instead.

mod operations;
mod ours;
mod theirs;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::ensure;
use burn_megatron::training::memory::keep_freed_memory;
use clap::{Args, Parser};

/// Measure a training step against PyTorch's.
#[derive(Parser)]
struct Arguments {
    /// An interpreter with PyTorch
    #[arg(long, value_name = "PATH", default_value = "python3")]
    python: PathBuf,
    /// The program that trains in PyTorch: takes the flags below and prints JSON with step_seconds
    #[arg(long, value_name = "PATH", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/bench_step/gpt_pytorch.py"))]
    script: PathBuf,
    /// How often each side is measured
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// Leave PyTorch out
    #[arg(long)]
    alone: bool,
    /// Measure the parts of our step, each by itself
    #[arg(long)]
    by_operation: bool,
    #[command(flatten)]
    problem: Problem,
    /// Train and print the seconds of each step, set for the process that this program starts
    #[arg(long, hide = true)]
    train: bool,
}

/// What is trained: the same on both sides.
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
    /// Samples per step
    #[arg(long, value_name = "N", default_value_t = 4)]
    micro_batch_size: usize,
    /// Tokens of the vocabulary
    #[arg(long, value_name = "N", default_value_t = 8192)]
    vocab_size: usize,
    /// Steps of each run
    #[arg(long, value_name = "N", default_value_t = 12)]
    steps: usize,
    /// Steps at the start of each run that are not counted
    #[arg(long, value_name = "N", default_value_t = 4)]
    warmup: usize,
    /// Threads of each side
    #[arg(long, value_name = "N", default_value_t = 2)]
    threads: usize,
    /// Make our model of burn's own operations instead of fused ones
    #[arg(long)]
    no_fused_kernels: bool,
}

fn main() -> ExitCode {
    keep_freed_memory();
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let problem = &arguments.problem;
    ensure!(
        arguments.rounds > 0 && problem.steps > problem.warmup,
        "--rounds must be at least 1 and --steps more than --warmup, got {}, {} and {}",
        arguments.rounds,
        problem.steps,
        problem.warmup
    );
    if arguments.train {
        return ours::train(problem);
    }
    if arguments.by_operation {
        return operations::measure(problem);
    }
    compare(arguments)
}

/// Runs both sides in turn and prints the medians.
fn compare(arguments: &Arguments) -> anyhow::Result<()> {
    let mut rounds = Vec::new();
    for round in 1..=arguments.rounds {
        let ours = ours::step_seconds(&arguments.problem)?;
        let theirs = match arguments.alone {
            true => f64::NAN,
            false => theirs::step_seconds(&arguments.python, &arguments.script, &arguments.problem)?,
        };
        println!(
            "round {round}: {:.1} ms, PyTorch {:.1} ms, ratio {:.3}",
            1e3 * ours,
            1e3 * theirs,
            ours / theirs
        );
        rounds.push([ours, theirs]);
    }
    let of = |figure: fn(&[f64; 2]) -> f64| median(rounds.iter().map(figure).collect());
    println!(
        "median of {} rounds on {} threads: {:.1} ms, PyTorch {:.1} ms, ratio {:.3}",
        arguments.rounds,
        arguments.problem.threads,
        1e3 * of(|round| round[0]),
        1e3 * of(|round| round[1]),
        of(|round| round[0] / round[1])
    );
    Ok(())
}

/// The middle value, the upper one of two.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
