//! Checkpoints of real processes: layouts, failures on one rank, two runs, and kills.
//!
//! The launcher of a case, and its ranks, are this program again.

mod arrays;
mod failures;
mod kills;
mod layouts;
pub mod ranks;
pub mod resuming;

use std::time::Duration;

use libtest_mimic::Trial;

/// The number of ranks of a case.
const RANKS: &str = "CHECKPOINT_TEST_RANKS";
/// The folder that a case saves to or loads from.
const DIRECTORY: &str = "CHECKPOINT_TEST_DIRECTORY";
/// The first iteration that a case saves.
const FIRST: &str = "CHECKPOINT_TEST_FIRST";
const LONG: Duration = Duration::from_secs(60);

pub fn trials() -> Vec<Trial> {
    let mut trials = tests::trials![
        layouts => [ranks_save_and_any_number_loads, saves_run_during_training],
        failures => [
            file_too_large_on_one_rank_fails_on_all,
            ranks_that_disagree_are_named,
            second_run_is_refused,
            later_checkpoint_is_named_on_all,
            folder_that_is_not_writable_is_named,
            folders_that_are_not_the_same_are_named,
        ],
        kills => [kills_leave_a_whole_checkpoint],
    ];
    trials.push(failures::no_space_left());
    trials
}

/// Returns a variable of the case as a number.
fn number(name: &str) -> usize {
    let text = std::env::var(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}"))
}
