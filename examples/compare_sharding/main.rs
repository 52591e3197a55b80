//! Trains the bundled GPT on one rank and in every layout asked for, and says whether they compute the same.
//!
//! ```text
//! cargo run --release --example compare_sharding -- --layouts tp2,tp2sp,dp2,tp2dp2
//! cargo run --release --example compare_sharding -- --layouts tp4sp --dtype f64
//! ```

use std::process::ExitCode;

use burn_megatron::training::memory::CountingAllocator;
use examples::comparing::compare;

#[global_allocator]
static ALLOCATOR: CountingAllocator<std::alloc::System> = CountingAllocator(std::alloc::System);

fn main() -> ExitCode {
    compare()
}
