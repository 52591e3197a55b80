//! `pretrain_gpt` that stops, on a signal or by the clock, and resumes; and checkpoints, flags and disks with which it
//! cannot.
//!
//! What the library alone refuses is tested there; here are the whole program's exit codes and words, on all ranks, and
//! that nothing is lost.

mod bad_input;
mod refusals;
mod stopping;

use libtest_mimic::{Arguments, Failed, Trial};
use tests::{processes, program, small_disk, training};

fn main() {
    let test = |name: &'static str, body: fn() -> anyhow::Result<()>| {
        Trial::test(name, move || body().map_err(|error| Failed::from(format!("{error:#}"))))
    };
    let mut tests = vec![
        test("bad_checkpoints_are_named_and_left_alone", bad_input::checkpoints),
        test("checkpoint_of_another_vocabulary_is_refused", bad_input::vocabulary),
        test("other_text_is_refused_unless_allowed", bad_input::text),
        test("other_schedule_is_refused_unless_asked_for", bad_input::schedule),
        test(
            "run_goes_on_with_another_batch_size_to_its_last_sample",
            bad_input::batches,
        ),
        test(
            "file_in_place_of_the_folder_is_named",
            refusals::file_in_place_of_the_folder,
        ),
        test("second_run_is_refused_and_the_first_unharmed", refusals::two_runs),
        test("sigterm_to_the_launcher_saves", stopping::sigterm_to_the_launcher),
        test("sigterm_to_one_rank_saves_on_all", stopping::sigterm_to_one_rank),
        test("sigterm_to_every_process_saves", stopping::sigterm_to_every_process),
        test("run_in_pieces_of_time_is_the_same_run", stopping::pieces_of_time),
        test(
            "run_with_other_numbers_of_data_parallel_ranks_sees_each_sample_once",
            stopping::other_numbers_of_ranks,
        ),
    ];
    tests.push(refusals::not_writable());
    tests.push(refusals::no_space_left());
    libtest_mimic::run(&Arguments::from_args(), tests).exit();
}
