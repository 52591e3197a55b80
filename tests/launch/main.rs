//! Tests of the launcher with real processes.
//!
//! The binary plays three roles. Started by cargo, it runs the tests; a test starts it again with `JOB_TEST_CASE`
//! set, and then it is the launcher of that case; the launcher starts it once per rank, and then RANK is set, too. A
//! case of `running` leaves that choice to the library.

mod failing;
mod meeting;
mod nodes;
mod restarting;
mod roles;
mod running;
mod signals;

use std::process::ExitCode;
use std::time::Duration;

use burn_megatron::launch::Environment;
use libtest_mimic::{Arguments, Failed, Trial};
use tests::job::{self, CASE, FOLDER};

use failing::*;
use meeting::*;
use nodes::*;
use restarting::*;
use roles::{act_as_launcher, act_as_rank};
use running::*;
use signals::*;

/// `node count master-port`, for a launcher of one of several nodes.
const NODE: &str = "LAUNCH_TEST_NODE";
/// Where node 0 of several listens: not the address that one node takes.
const NODE_ZERO: &str = "127.0.0.2";
const LONG: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    match (std::env::var(CASE), Environment::detect()) {
        (Err(_), _) => run_tests(),
        (Ok(case), _) if case.starts_with(running::PREFIX) => return play(&case),
        (Ok(case), Ok(None)) => act_as_launcher(&case),
        (Ok(case), Ok(Some(environment))) => act_as_rank(&case, &environment),
        (Ok(_), Err(error)) => panic!("{error}"),
    }
    ExitCode::SUCCESS
}

fn run_tests() {
    let test = |name: &'static str, body: fn() -> Result<(), Failed>| Trial::test(name, body);
    let tests = vec![
        test("all_ranks_succeed", all_ranks_succeed),
        test("sixteen_ranks_meet", sixteen_ranks_meet),
        test(
            "eight_busy_ranks_are_not_taken_for_silent",
            eight_busy_ranks_are_not_taken_for_silent,
        ),
        test("late_rank_is_waited_for", late_rank_is_waited_for),
        test(
            "lines_stay_whole_and_rank_zero_can_be_plain",
            lines_stay_whole_and_rank_zero_can_be_plain,
        ),
        test(
            "exit_code_of_the_first_failure_is_kept",
            exit_code_of_the_first_failure_is_kept,
        ),
        test(
            "own_error_is_reported_everywhere_and_printed_once",
            own_error_is_reported_everywhere_and_printed_once,
        ),
        test(
            "error_of_a_rank_that_is_not_logged_is_printed",
            error_of_a_rank_that_is_not_logged_is_printed,
        ),
        test("panic_is_reported_everywhere", panic_is_reported_everywhere),
        test(
            "killed_rank_is_named_and_nothing_is_left",
            killed_rank_is_named_and_nothing_is_left,
        ),
        test("ranks_die_with_their_launcher", ranks_die_with_their_launcher),
        test("rank_that_never_joins_is_named", rank_that_never_joins_is_named),
        test(
            "rank_that_ends_without_joining_is_named",
            rank_that_ends_without_joining_is_named,
        ),
        test("rank_that_does_not_end_is_killed", rank_that_does_not_end_is_killed),
        test("interrupt_ends_ranks_in_good_order", interrupt_ends_ranks_in_good_order),
        test("second_interrupt_kills", second_interrupt_kills),
        test("later_signal_ends_a_rank_at_once", later_signal_ends_a_rank_at_once),
        test(
            "hosting_rank_that_is_killed_is_named",
            hosting_rank_that_is_killed_is_named,
        ),
        test("failed_ranks_start_again", failed_ranks_start_again),
        test("restarts_end_with_the_last_failure", restarts_end_with_the_last_failure),
        test(
            "a_signal_ends_a_job_that_is_about_to_restart",
            a_signal_ends_a_job_that_is_about_to_restart,
        ),
        test("both_nodes_start_again", both_nodes_start_again),
        test(
            "a_signal_to_one_of_two_nodes_ends_both",
            a_signal_to_one_of_two_nodes_ends_both,
        ),
        test("taken_port_is_an_error", taken_port_is_an_error),
        test(
            "run_calls_its_function_in_every_rank_and_only_there",
            run_calls_its_function_in_every_rank_and_only_there,
        ),
        test("run_ends_with_the_error_of_a_rank", run_ends_with_the_error_of_a_rank),
        test(
            "run_reports_a_collective_that_fails_in_a_layer",
            run_reports_a_collective_that_fails_in_a_layer,
        ),
        test(
            "run_refuses_a_number_of_ranks_that_cannot_be",
            run_refuses_a_number_of_ranks_that_cannot_be,
        ),
        test("ranks_of_two_nodes_meet", ranks_of_two_nodes_meet),
        test("killed_rank_is_named_on_both_nodes", killed_rank_is_named_on_both_nodes),
        test(
            "killed_rank_of_node_zero_is_named_on_both_nodes",
            killed_rank_of_node_zero_is_named_on_both_nodes,
        ),
        test(
            "killed_launcher_of_node_zero_is_named",
            killed_launcher_of_node_zero_is_named,
        ),
        test(
            "rank_that_ends_without_joining_is_named_on_its_node",
            rank_that_ends_without_joining_is_named_on_its_node,
        ),
        test(
            "launcher_killed_before_its_ranks_have_joined_is_named",
            launcher_killed_before_its_ranks_have_joined_is_named,
        ),
        test(
            "rank_that_cannot_be_started_is_named_on_the_other_node",
            rank_that_cannot_be_started_is_named_on_the_other_node,
        ),
        test("nodes_that_do_not_fit_are_refused", nodes_that_do_not_fit_are_refused),
    ];
    libtest_mimic::run(&Arguments::from_args(), tests).exit();
}
