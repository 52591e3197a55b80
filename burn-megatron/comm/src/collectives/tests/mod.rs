//! The contract of the engines: one set of tests for all of them.
//!
//! A test is a function that takes a [`Suite`], which says over which engine the groups go. The list below has every
//! test; they run over each engine for host memory.

mod asynchronous;
mod choices;
mod contract;
mod failures;
mod minimal;
mod model;
mod notes;
mod operations;
mod random;
mod shared_buffers;
mod speed;
mod suite;
mod threads;

use super::call::GroupLabel;
use super::health::GroupHealth;
use super::rendezvous::Rendezvous;
use super::{CollectiveError, ElementType, EngineChoice, ProcessGroup};
use crate::launch::{PeerFailure, World};
pub(super) use crate::rank_threads::{TIMEOUT, join_worlds, join_worlds_on, run_ranks, run_worlds};
use std::sync::Arc;
use std::time::Duration;
pub(super) use suite::Suite;

/// The bound of waits that are meant to run out.
pub(super) const SHORT_TIMEOUT: Duration = Duration::from_millis(300);

/// Waits until all ranks of the job are here: none goes while others still look.
pub(super) fn leave_together(world: &World) {
    let key = |rank: usize| format!("leaves/{rank}");
    world.store().set_within(&key(world.rank()), b"", TIMEOUT).unwrap();
    for rank in 0..world.world_size() {
        world.store().wait(&key(rank), TIMEOUT).unwrap();
    }
}

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
            shared_buffers::long_buffers_match_the_model
            shared_buffers::shared_buffers_come_back_in_any_order
            shared_buffers::a_call_whose_buffer_is_not_waited_for_still_completes
            shared_buffers::two_groups_reduce_at_the_same_time
            shared_buffers::ordinary_calls_and_those_on_shared_buffers_alternate
            shared_buffers::buffers_and_groups_go_in_any_order
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

/// The engines under test; each has a line below.
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
for_each_case!(tests_of_engine! shared_memory Suite::new(EngineChoice::SharedMemory));
for_each_case!(tests_of_engine! tcp Suite::new(EngineChoice::Tcp));
for_each_case!(tests_of_engine! hierarchical Suite::new(EngineChoice::Hierarchical));
for_each_case!(tests_of_engine! tree Suite::over_tree());

/// Returns what an engine is connected with, for a group of all ranks.
pub(super) fn group_parts(world: &World, name: &str) -> (Arc<GroupHealth>, Rendezvous) {
    let ranks: Vec<usize> = (0..world.world_size()).collect();
    group_parts_of(world, name, &ranks).unwrap()
}

fn group_parts_of(
    world: &World,
    name: &str,
    ranks: &[usize],
) -> Result<(Arc<GroupHealth>, Rendezvous), CollectiveError> {
    let label = GroupLabel {
        name: name.into(),
        ranks: ranks.into(),
        rank: ranks.binary_search(&world.rank()).unwrap(),
    };
    let health = Arc::new(GroupHealth::new(label, world));
    let rendezvous = Rendezvous::new(world, &health)?;
    Ok((health, rendezvous))
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
