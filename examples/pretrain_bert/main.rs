//! Trains a BERT on text, on one rank or on many: `pretrain_gpt` for masked tokens and the order of sentences.
//!
//! ```text
//! cargo run --release --example pretrain_bert
//! cargo run --release --example pretrain_bert -- --tensor-model-parallel-size 2 --sequence-parallel
//! cargo run --release --example pretrain_bert -- --pipeline-model-parallel-size 2 --micro-batch-size 2
//! ```

use std::process::ExitCode;

use burn_megatron::training::memory::CountingAllocator;
use examples::pretraining::pretrain_family;

#[global_allocator]
static ALLOCATOR: CountingAllocator<std::alloc::System> = CountingAllocator(std::alloc::System);

fn main() -> ExitCode {
    pretrain_family("bert")
}
