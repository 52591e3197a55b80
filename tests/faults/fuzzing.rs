//! Everything that reads bytes from outside, fed with valid bytes that were mutated: flipped, cut, spliced, repeated.
//!
//! The same functions are the targets of the coverage-guided fuzzers in `burn-megatron/comm/fuzz`. A few seconds per
//! target; `BURN_MEGATRON_FUZZ_SECONDS` gives each more. A failure prints the input.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use burn_megatron_comm::fuzzing::{Target, allocations::Counting, run, target};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Mutated inputs per target.
const CASES: u32 = 3000;

/// One step away from a valid input.
#[derive(Clone, Debug)]
enum Mutation {
    Set(usize, u8),
    Flip(usize, u8),
    Cut(usize),
    Remove(usize, usize),
    Insert(usize, Vec<u8>),
    /// A number of 4 or 8 bytes, at the limits where lengths go wrong.
    Number(usize, u64, bool),
    /// A piece of another seed.
    Splice(usize, usize, usize, usize),
    Repeat(usize, usize),
}

fn mutations() -> impl Strategy<Value = Mutation> {
    let place = any::<usize>;
    let limits = prop_oneof![
        Just(0),
        Just(1),
        Just(u64::from(u32::MAX)),
        Just(u64::MAX),
        Just(1 << 63),
        Just(1 << 40),
        Just((64 << 20) + 5000),
        any::<u64>(),
    ];
    prop_oneof![
        (place(), any::<u8>()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        (place(), 0_u8..8).prop_map(|(at, bit)| Mutation::Flip(at, bit)),
        place().prop_map(Mutation::Cut),
        (place(), 1_usize..20).prop_map(|(at, length)| Mutation::Remove(at, length)),
        (place(), prop::collection::vec(any::<u8>(), 1..40)).prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
        (place(), limits, any::<bool>()).prop_map(|(at, number, is_wide)| Mutation::Number(at, number, is_wide)),
        (place(), place(), place(), 1_usize..60)
            .prop_map(|(at, seed, from, length)| Mutation::Splice(at, seed, from, length)),
        (place(), 1_usize..60).prop_map(|(at, length)| Mutation::Repeat(at, length)),
    ]
}

fn mutate(mut bytes: Vec<u8>, seeds: &[Vec<u8>], mutation: &Mutation) -> Vec<u8> {
    let length = bytes.len();
    let piece = |of: &[u8], from: usize, count: usize| {
        let from = from % (of.len() + 1);
        of[from..of.len().min(from + count)].to_vec()
    };
    let mut insert = |at: usize, new: Vec<u8>| drop(bytes.splice(at % (length + 1)..at % (length + 1), new));
    match mutation {
        Mutation::Insert(at, new) => insert(*at, new.clone()),
        Mutation::Splice(at, seed, from, count) => insert(*at, piece(&seeds[seed % seeds.len()], *from, *count)),
        Mutation::Repeat(at, count) => {
            let again = piece(&bytes, *at, *count);
            bytes.splice(at % (length + 1)..at % (length + 1), again);
        }
        _ if length == 0 => {}
        Mutation::Set(at, byte) => bytes[at % length] = *byte,
        Mutation::Flip(at, bit) => bytes[at % length] ^= 1 << bit,
        Mutation::Cut(at) => bytes.truncate(at % length),
        Mutation::Remove(at, count) => drop(bytes.drain(at % length..length.min(at % length + count))),
        Mutation::Number(at, number, is_wide) => {
            let number = &number.to_le_bytes()[..if *is_wide { 8 } else { 4 }];
            bytes[at % length..]
                .iter_mut()
                .zip(number)
                .for_each(|(place, byte)| *place = *byte);
        }
    }
    bytes
}

/// Runs a target on its seeds and on what is made of them.
fn fuzz(name: &str) {
    let Target { read, seeds, .. } = target(name);
    let seeds = seeds();
    for seed in &seeds {
        run(read, seed);
        // Every prefix: a connection may break anywhere.
        (0..seed.len()).for_each(|end| run(read, &seed[..end]));
    }
    let seconds = std::env::var("BURN_MEGATRON_FUZZ_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok());
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut cases = 0_u64;
    loop {
        let mut runner = TestRunner::new(Config {
            cases: CASES,
            failure_persistence: None,
            ..Config::default()
        });
        let inputs = (any::<usize>(), prop::collection::vec(mutations(), 1..8));
        let result = runner.run(&inputs, |(seed, mutations)| {
            let seed = seeds[seed % seeds.len()].clone();
            let input = mutations
                .iter()
                .fold(seed, |bytes, mutation| mutate(bytes, &seeds, mutation));
            let outcome = catch_unwind(AssertUnwindSafe(|| run(read, &input)));
            outcome.map_err(|_| TestCaseError::fail(format!("input {input:?}")))
        });
        if let Err(error) = result {
            panic!("{name}: {error}");
        }
        cases += u64::from(CASES);
        if end.is_none_or(|end| Instant::now() > end) {
            break;
        }
    }
    println!("{name}: {} seeds, {cases} mutated inputs", seeds.len());
}

#[test]
fn a_message_of_the_store_is_read_whole_or_refused() {
    fuzz("store_protocol");
}

#[test]
fn nobody_passes_the_handshake_without_the_token() {
    fuzz("handshake");
}

#[test]
fn the_stores_server_survives_any_order_of_requests() {
    fuzz("store_server");
}

#[test]
fn a_descriptor_of_another_rank_is_read_whole_or_refused() {
    fuzz("call_descriptor");
}

#[test]
fn any_environment_is_a_place_or_an_error() {
    fuzz("environment");
}

#[test]
fn any_flight_record_is_read_whole_or_refused() {
    fuzz("flight_record");
}

#[test]
fn a_reader_that_believes_a_length_is_caught() {
    fn believes(data: &[u8]) {
        let length = data.first().map_or(0, |byte| usize::from(*byte) << 20);
        drop(std::hint::black_box(Vec::<u8>::with_capacity(length)));
    }
    run(believes, &[0, 1, 2]);
    let caught = catch_unwind(|| run(believes, &[9])).unwrap_err();
    match caught.downcast::<String>() {
        Ok(message) => assert!(
            message.starts_with("1 bytes of input made it allocate 9437184 bytes"),
            "{message}"
        ),
        Err(other) => resume_unwind(other),
    }
}
