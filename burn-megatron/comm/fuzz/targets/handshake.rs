//! Fuzzes `handshake`; see `burn_megatron_comm::fuzzing`.

#![no_main]

use burn_megatron_comm::fuzzing::{self, allocations::Counting};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::run(fuzzing::handshake, data));
