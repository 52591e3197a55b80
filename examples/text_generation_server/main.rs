//! Serves a trained model over HTTP, on one rank or on many: Megatron-LM's `PUT /api` and OpenAI's `/v1/completions`.
//!
//! ```text
//! cargo run --release --example text_generation_server -- --load checkpoints
//! cargo run --release --example text_generation_server -- --load gpt2/ --model-parallel-size 2 --port 8000
//! curl http://127.0.0.1:5000/v1/completions -H 'Content-Type: application/json' -d '{"prompt": "fn main() {"}'
//! ```

use std::process::ExitCode;

use burn_megatron::training::memory::{CountingAllocator, keep_freed_memory};
use clap::Parser;
use examples::arguments::{ServerArguments, parse};
use examples::launching::exit_code;
use examples::serving::serve;

#[global_allocator]
static ALLOCATOR: CountingAllocator<std::alloc::System> = CountingAllocator(std::alloc::System);

/// Serve a trained model over HTTP.
///
/// Takes checkpoints of any layout, and Hugging Face's folders. Answers Megatron-LM's PUT /api, OpenAI's
/// /v1/completions and /v1/models, /health, and a page to try it at /. With more than one rank, this program starts
/// itself once per rank, or joins the ranks that torchrun, Slurm or Open MPI started; rank 0 listens.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    server: ServerArguments,
}

fn main() -> ExitCode {
    keep_freed_memory();
    let Arguments { server } = parse();
    exit_code(serve(&server), 2)
}
