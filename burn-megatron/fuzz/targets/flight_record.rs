//! Fuzzes `flight_record`; see `burn_megatron::fuzzing`.

#![no_main]

#[global_allocator]
static ALLOCATOR: burn_megatron::fuzzing::allocations::Counting = burn_megatron::fuzzing::allocations::Counting;

libfuzzer_sys::fuzz_target!(|data: &[u8]| burn_megatron::fuzzing::run(burn_megatron::fuzzing::flight_record, data));
