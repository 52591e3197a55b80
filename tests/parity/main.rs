//! The test binary: parity of every layout with one rank, with PyTorch and with plain burn layers, and faults.
//!
//! Every case runs in real processes. The binary starts itself: as a test runner it lists the trials; for each it
//! starts itself as a job ([`harness`]), which starts itself once per rank; a rank runs one of the [`cases`].

mod cases;

use std::alloc::System;
use std::process::ExitCode;

use burn_megatron::training::memory::CountingAllocator;
use tests::harness;

/// Some cases are about what ranks have allocated.
#[global_allocator]
static ALLOCATOR: CountingAllocator<System> = CountingAllocator(System);

fn main() -> ExitCode {
    harness::main(
        cases::trials,
        harness::Ranks {
            before_join: cases::before_join,
            change_environment: cases::change_environment,
            run: cases::run,
        },
    )
}
