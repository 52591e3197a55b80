//! The contract of the engines: one set of tests for all of them.
//!
//! A test is a function that takes a [`Suite`], which says over which engine the groups go and where the ranks are:
//! threads of this process, each with a world and groups of its own, or processes, one per rank, for engines that want
//! that. The list below has every test; this crate's unit tests run it over each engine for host memory, and a program
//! under `mpirun` (feature `contract-suite`) runs [`CASES`] over MPI.
#![allow(clippy::unwrap_used, reason = "tests, also where they are compiled as a module")]

mod asynchronous;
#[cfg(test)]
mod choices;
mod contract;
mod failures;
#[cfg(test)]
mod minimal;
mod model;
#[cfg(test)]
mod notes;
mod operations;
mod random;
mod shared_buffers;
#[cfg(test)]
mod speed;
mod suite;
mod threads;
mod worlds;

use super::{ElementType, EngineChoice, ProcessGroup};
use crate::launch::{PeerFailure, World};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;
pub use suite::{Case, Suite};
#[cfg(test)]
pub(super) use worlds::group_parts;
use worlds::{free_port, join_world};
pub(super) use worlds::{join_worlds, join_worlds_on};

/// The bound of waits that are not meant to run out.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// The bound of waits that are.
pub const SHORT_TIMEOUT: Duration = Duration::from_millis(300);

/// Calls a function for every element type, the number of which the compiler compares with [`ElementType::ALL`].
macro_rules! for_each_element {
    ($function:ident($argument:expr)) => {
        for_each_element!(@ $function($argument) f32, f64, half::f16, half::bf16, i32, i64, u8)
    };
    (@ $function:ident($argument:expr) $($element:ty),*) => {{
        const { assert!([$(size_of::<$element>()),*].len() == ElementType::ALL.len()) };
        $($function::<$element>($argument);)*
    }};
}
use for_each_element;

/// Hands the list of all tests to a macro, after the macro's own arguments.
macro_rules! for_each_case {
    ($then:ident! $($argument:tt)*) => {
        $then! {
            [$($argument)*]
            asynchronous::handles_can_be_waited_for_in_any_order
            asynchronous::blocking_calls_run_after_started_ones
            asynchronous::a_dropped_handle_still_completes
            asynchronous::large_exchanges_do_not_block
            asynchronous::a_group_dropped_with_calls_pending_does_not_hang
            asynchronous::a_group_can_be_shared_between_threads
            asynchronous::a_started_barrier_waits_for_every_rank
            contract::one_rank_matches_the_model
            contract::two_ranks_match_the_model
            contract::three_ranks_match_the_model
            contract::four_ranks_match_the_model
            contract::sums_do_not_depend_on_chunk_boundaries
            contract::a_message_sent_in_parts_gives_the_same_bits
            contract::small_sends_do_not_wait_for_their_receiver
            contract::a_name_can_be_used_again_and_for_other_ranks
            contract::payload_bytes_are_counted
            failures::different_operations_are_named_on_every_rank
            failures::different_lengths_are_named_on_every_rank
            failures::different_types_roots_and_reductions_are_named
            failures::different_transfers_are_named_on_both_sides
            failures::a_timeout_names_exactly_the_missing_ranks
            failures::a_message_that_never_comes_times_out
            failures::a_receive_after_one_that_is_not_waited_for_times_out
            failures::connecting_times_out_and_names_the_missing_rank
            failures::a_failure_during_a_wait_ends_it_at_once
            failures::a_failure_before_a_call_is_seen
            failures::a_rank_that_leaves_is_named
            failures::a_group_that_is_given_up_fails_on_all_ranks_at_once
            failures::a_disconnect_reason_can_be_read_without_a_call
            failures::wrong_arguments_are_refused_and_the_group_stays_usable
            shared_buffers::shared_buffers_of_one_rank_match_the_model
            shared_buffers::shared_buffers_of_two_ranks_match_the_model
            shared_buffers::shared_buffers_of_three_ranks_match_the_model
            shared_buffers::shared_buffers_of_four_ranks_match_the_model
            shared_buffers::long_buffers_match_the_model
            shared_buffers::shared_buffers_come_back_in_any_order
            shared_buffers::a_call_whose_buffer_is_not_waited_for_still_completes
            shared_buffers::two_groups_reduce_at_the_same_time
            shared_buffers::ordinary_calls_and_those_on_shared_buffers_alternate
            shared_buffers::buffers_and_groups_go_in_any_order
            shared_buffers::payload_bytes_are_counted_as_for_ordinary_calls
            shared_buffers::different_allocations_are_named_on_every_rank
            shared_buffers::different_buffers_and_calls_are_named_on_every_rank
            shared_buffers::wrong_arguments_are_refused_and_the_buffer_is_kept
            shared_buffers::a_rank_that_does_not_come_is_named_and_the_buffer_is_lost
            shared_buffers::a_failure_during_a_wait_for_a_buffer_ends_it_at_once
            shared_buffers::a_rank_that_drops_buffer_and_group_is_named
            threads::a_second_thread_with_collectives_is_refused
            threads::two_threads_without_the_collectives_are_both_refused
            threads::two_threads_that_race_for_collectives_end_with_an_error
            threads::threads_that_take_turns_are_refused
            threads::collectives_that_are_handed_over_are_taken_and_return
            threads::a_second_thread_with_transfers_of_one_peer_is_refused
            threads::a_group_of_one_takes_calls_of_any_thread
            random::random_programs_in_concurrent_groups_match_the_model
        }
    };
}

macro_rules! table_of_cases {
    ([] $($module:ident::$case:ident)*) => {
        /// Every test, by name.
        pub const CASES: &[Case] = &[$(Case { name: stringify!($case), run: $module::$case }),*];
    };
}
for_each_case!(table_of_cases!);

/// The engines under test in threads; each has a line below.
#[cfg(test)]
pub(super) const ENGINES: [EngineChoice; 3] = [
    EngineChoice::SharedMemory,
    EngineChoice::Tcp,
    EngineChoice::Hierarchical,
];

/// Returns the worlds of a new job for a test of `engine`: on one host, or, of the hierarchical one, on two.
pub(super) fn worlds_for(engine: EngineChoice, n: usize, timeout: Duration) -> Vec<World> {
    match engine {
        EngineChoice::Hierarchical => {
            let hosts: Vec<_> = (0..n)
                .map(|rank| Some(if rank < n / 2 { "here" } else { "there" }))
                .collect();
            join_worlds_on(&hosts, timeout)
        }
        _ => join_worlds(n, timeout),
    }
}

#[cfg(test)]
macro_rules! tests_of_engine {
    ([$engine:ident $suite:expr] $($module:ident::$case:ident)*) => {
        mod $engine {
            use super::*;
            $(
                #[test]
                fn $case() {
                    super::$module::$case(&$suite);
                }
            )*
        }
    };
}
#[cfg(test)]
for_each_case!(tests_of_engine! shared_memory Suite::in_threads(EngineChoice::SharedMemory));
#[cfg(test)]
for_each_case!(tests_of_engine! tcp Suite::in_threads(EngineChoice::Tcp));
#[cfg(test)]
for_each_case!(tests_of_engine! hierarchical Suite::in_threads(EngineChoice::Hierarchical));
#[cfg(test)]
for_each_case!(tests_of_engine! tree Suite::over_tree());

/// Runs `body` on `n` ranks, which are threads, at the same time and returns what each returned, by rank. A rank that
/// panics raises the failure signal of the others, then the whole test fails.
pub fn run_ranks<R: Send>(n: usize, timeout: Duration, body: impl Fn(World) -> R + Sync) -> Vec<R> {
    run_worlds(join_worlds(n, timeout), body)
}

/// Like [`run_ranks`], in worlds that are there already.
pub(super) fn run_worlds<R: Send>(worlds: Vec<World>, body: impl Fn(World) -> R + Sync) -> Vec<R> {
    let signals: Vec<_> = worlds.iter().map(|world| world.failure().clone()).collect();
    let run = |world: World| {
        let rank = world.rank();
        catch_unwind(AssertUnwindSafe(|| body(world))).inspect_err(|_| {
            for signal in &signals {
                signal.raise(PeerFailure {
                    rank,
                    host: "here".into(),
                    what: "panicked".into(),
                });
            }
        })
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = worlds.into_iter().map(|world| scope.spawn(|| run(world))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("panics are caught inside"))
            .collect()
    });
    results
        .into_iter()
        .collect::<Result<_, _>>()
        .unwrap_or_else(|panic| resume_unwind(panic))
}

/// Connects a group of all ranks.
pub(super) fn connect_all(world: &World, engine: EngineChoice) -> ProcessGroup {
    let ranks: Vec<usize> = (0..world.world_size()).collect();
    ProcessGroup::connect(world, "all", &ranks, &engine).unwrap()
}

/// Returns a number that looks random (splitmix64).
pub(super) fn scramble(seed: u64) -> u64 {
    let mut x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
