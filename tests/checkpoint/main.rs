//! Checkpoints of real processes: layouts, failures on one rank, two runs, and kills.
//!
//! As in the tests of the launcher, the binary plays three roles: it runs the tests; it is the launcher of a case; and,
//! with RANK set, it is one of its ranks.

mod arrays;
mod failures;
mod kills;
mod layouts;
mod ranks;

use std::time::Duration;

use burn_megatron::launch::Environment;
use libtest_mimic::{Arguments, Failed, Trial};
use tests::job::{self, CASE};
use tests::small_disk;

/// The number of ranks of a case.
const RANKS: &str = "CHECKPOINT_TEST_RANKS";
/// The folder that a case saves to or loads from.
const DIRECTORY: &str = "CHECKPOINT_TEST_DIRECTORY";
/// The first iteration that a case saves.
const FIRST: &str = "CHECKPOINT_TEST_FIRST";
const LONG: Duration = Duration::from_secs(60);

fn main() {
    match (std::env::var(CASE), Environment::detect()) {
        (Err(_), _) => run_tests(),
        (Ok(_), Ok(None)) => ranks::act_as_launcher(),
        (Ok(case), Ok(Some(environment))) => ranks::act_as_rank(&case, &environment),
        (Ok(_), Err(error)) => panic!("{error}"),
    }
}

fn run_tests() {
    let test = |name: &'static str, body: fn() -> Result<(), Failed>| Trial::test(name, body);
    let mut tests = vec![
        test(
            "ranks_save_and_any_number_loads",
            layouts::ranks_save_and_any_number_loads,
        ),
        test("saves_run_during_training", layouts::saves_run_during_training),
        test("file_too_large_on_one_rank_fails_on_all", failures::file_too_large),
        test("ranks_that_disagree_are_named", failures::ranks_disagree),
        test("second_run_is_refused", failures::second_run_is_refused),
        test("later_checkpoint_is_named_on_all", failures::later_checkpoint),
        test("folder_that_is_not_writable_is_named", failures::not_writable),
        test("folders_that_are_not_the_same_are_named", failures::two_folders),
        test("kills_leave_a_whole_checkpoint", kills::kills_leave_a_whole_checkpoint),
    ];
    tests.push(failures::no_space_left());
    libtest_mimic::run(&Arguments::from_args(), tests).exit();
}

/// Returns a variable of the case as a number.
fn number(name: &str) -> usize {
    let text = std::env::var(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}"))
}
