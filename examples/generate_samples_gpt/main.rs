//! Continues texts with a trained model, on one rank or on many.
//!
//! ```text
//! cargo run --release --example generate_samples_gpt -- --prompt "fn main() {" --out-seq-length 64 --greedy
//! cargo run --release --example generate_samples_gpt -- --load checkpoints --model-parallel-size 2 --top_p 0.9
//! cargo run --release --example generate_samples_gpt -- --prompt-file prompts.txt --num-samples 4 --json
//! ```

use std::process::ExitCode;

use burn_megatron::training::memory::{CountingAllocator, keep_freed_memory};
use clap::Parser;
use examples::arguments::{GenerationArguments, parse};
use examples::generating::generate;
use examples::launching::exit_code;

#[global_allocator]
static ALLOCATOR: CountingAllocator<std::alloc::System> = CountingAllocator(std::alloc::System);

/// Continue texts with a trained model.
///
/// Takes checkpoints of any layout, and Hugging Face's folders. With more than one rank, this program starts itself
/// once per rank, or joins the ranks that torchrun, Slurm or Open MPI started. Flags may be written with underscores,
/// and of a repeated flag the last one counts, except for --stop.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    generation: GenerationArguments,
}

fn main() -> ExitCode {
    keep_freed_memory();
    let Arguments { generation } = parse();
    exit_code(generate(&generation), 2)
}
