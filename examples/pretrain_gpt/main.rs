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

use burn_megatron::training::memory::CountingAllocator;
use examples::pretraining::pretrain_family;

#[global_allocator]
static ALLOCATOR: CountingAllocator<std::alloc::System> = CountingAllocator(std::alloc::System);

fn main() -> ExitCode {
    pretrain_family("gpt")
}
