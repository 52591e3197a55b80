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
use clap::Parser;
use examples::arguments::{ModeArguments, THOUSANDS_OF_RANKS, TrainingArguments};
use examples::deepspeed::parse_shown;
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
#[command(after_long_help = THOUSANDS_OF_RANKS)]
struct Arguments {
    #[command(flatten)]
    training: TrainingArguments,
    #[command(flatten)]
    mode: ModeArguments,
}

fn main() -> ExitCode {
    let started = Instant::now();
    keep_freed_memory();
    let (Arguments { training, mode }, given) = parse_shown();
    exit_code(pretrain(&training, &given, mode, started), 2)
}
