//! Trains a T5 on text, on one rank or on many: `pretrain_gpt` for spans that were left out of a text.
//!
//! ```text
//! cargo run --release --example pretrain_t5
//! cargo run --release --example pretrain_t5 -- --tensor-model-parallel-size 2 --sequence-parallel
//! cargo run --release --example pretrain_t5 -- --pipeline-model-parallel-size 2 --micro-batch-size 2
//! ```

use std::process::ExitCode;

use burn_megatron::training::memory::CountingAllocator;
use examples::pretraining::pretrain_family;

#[global_allocator]
static ALLOCATOR: CountingAllocator<std::alloc::System> = CountingAllocator(std::alloc::System);

fn main() -> ExitCode {
    pretrain_family("t5")
}
