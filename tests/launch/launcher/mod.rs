//! Tests of the launcher with real processes.
//!
//! The launcher of a case, and its ranks, are this program again. A case of `running` leaves to the
//! library which of them a process is.

mod failing;
mod meeting;
mod nodes;
mod restarting;
pub mod roles;
pub mod running;
mod signals;

use std::time::Duration;

use libtest_mimic::Trial;

/// `node count master-port`, for a launcher of one of several nodes.
const NODE: &str = "LAUNCH_TEST_NODE";
/// Where node 0 of several listens: not the address that one node takes.
const NODE_ZERO: &str = "127.0.0.2";
const LONG: Duration = Duration::from_secs(60);

pub fn trials() -> Vec<Trial> {
    tests::trials![
        meeting => [
            all_ranks_succeed,
            sixteen_ranks_meet,
            eight_busy_ranks_are_not_taken_for_silent,
            late_rank_is_waited_for,
            lines_stay_whole_and_rank_zero_can_be_plain,
            taken_port_is_an_error,
        ],
        failing => [
            exit_code_of_the_first_failure_is_kept,
            own_error_is_reported_everywhere_and_printed_once,
            error_of_a_rank_that_is_not_logged_is_printed,
            panic_is_reported_everywhere,
            killed_rank_is_named_and_nothing_is_left,
            ranks_die_with_their_launcher,
            rank_that_never_joins_is_named,
            rank_that_ends_without_joining_is_named,
            rank_that_does_not_end_is_killed,
            hosting_rank_that_is_killed_is_named,
        ],
        signals => [interrupt_ends_ranks_in_good_order, second_interrupt_kills, later_signal_ends_a_rank_at_once],
        restarting => [
            failed_ranks_start_again,
            restarts_end_with_the_last_failure,
            a_signal_ends_a_job_that_is_about_to_restart,
            both_nodes_start_again,
            a_signal_to_one_of_two_nodes_ends_both,
        ],
        running => [
            run_calls_its_function_in_every_rank_and_only_there,
            run_ends_with_the_error_of_a_rank,
            run_reports_a_collective_that_fails_in_a_layer,
            run_refuses_a_number_of_ranks_that_cannot_be,
        ],
        nodes => [
            ranks_of_two_nodes_meet,
            killed_rank_is_named_on_both_nodes,
            killed_rank_of_node_zero_is_named_on_both_nodes,
            killed_launcher_of_node_zero_is_named,
            rank_that_ends_without_joining_is_named_on_its_node,
            launcher_killed_before_its_ranks_have_joined_is_named,
            rank_that_cannot_be_started_is_named_on_the_other_node,
            nodes_that_do_not_fit_are_refused,
        ],
    ]
}
