//! Fuzzes `store_handshake`; see `burn_megatron::fuzzing`.

#![no_main]

#[global_allocator]
static ALLOCATOR: burn_megatron::fuzzing::allocations::Counting = burn_megatron::fuzzing::allocations::Counting;

libfuzzer_sys::fuzz_target!(|data: &[u8]| burn_megatron::fuzzing::run(burn_megatron::fuzzing::store_handshake, data));
