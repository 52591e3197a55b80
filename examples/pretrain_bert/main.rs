//! Trains a BERT on text, on one rank or on many: `pretrain_gpt` for masked tokens and the order of sentences.
//!
//! ```text
//! cargo run --release --example pretrain_bert
//! cargo run --release --example pretrain_bert -- --tensor-model-parallel-size 2 --sequence-parallel
//! cargo run --release --example pretrain_bert -- --pipeline-model-parallel-size 2 --micro-batch-size 2
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

/// Train a BERT.
///
/// With no flags: a small one on one rank, on the Rust sources that cargo downloaded to build this program. With more
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
    let (arguments, given): (Arguments, _) = parse_shown();
    let Arguments { mut training, mode } = arguments;
    let of_family = training.model.set_family("bert");
    let done = of_family.and_then(|()| pretrain(&training, &given, mode, started));
    exit_code(done, 2)
}
