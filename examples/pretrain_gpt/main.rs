//! Trains the bundled GPT on text, on one rank or on many.
//!
//! ```text
//! cargo run --release --example pretrain_gpt
//! cargo run --release --example pretrain_gpt -- --tensor-model-parallel-size 2 --sequence-parallel
//! cargo run --release --example pretrain_gpt -- --world-size 2
//! cargo run --release --example pretrain_gpt -- --pipeline-model-parallel-size 2 --micro-batch-size 2
//! cargo run --release --example pretrain_gpt -- --pipeline-model-parallel-size 2 --micro-batch-size 2 --timeline t.svg
//! ```

use std::process::ExitCode;
use std::time::Instant;

use burn_megatron::training::memory::{CountingAllocator, keep_freed_memory};
use burn_megatron_data::programs::parse_shown;
use clap::Parser;
use examples::arguments::TrainingArguments;
use examples::launching::exit_code;
use examples::pretraining::pretrain;

#[global_allocator]
static ALLOCATOR: CountingAllocator<std::alloc::System> = CountingAllocator(std::alloc::System);

/// Train the bundled GPT.
///
/// With no flags: a small GPT on one rank, on the Rust sources that cargo downloaded to build this program. With more
/// than one rank, this program starts itself once per rank, or joins the ranks that torchrun, Slurm or Open MPI
/// started. Flags may be written with underscores, and of a repeated flag the last one counts.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    training: TrainingArguments,
    /// Compare version, flags and text of all ranks, measure every group, print one table, and end
    #[arg(long)]
    preflight: bool,
}

fn main() -> ExitCode {
    let started = Instant::now();
    keep_freed_memory();
    let (Arguments { training, preflight }, given) = parse_shown();
    exit_code(pretrain(&training, &given, preflight, started), 2)
}
