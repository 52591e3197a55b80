//! `pretrain_gpt` that stops, on a signal or by the clock, and resumes; and checkpoints, flags and disks with which it
//! cannot.
//!
//! What the library alone refuses is tested there; here are the whole program's exit codes and words, on all ranks, and
//! that nothing is lost.

mod bad_input;
mod refusals;
mod stopping;

use libtest_mimic::Trial;

pub fn trials() -> Vec<Trial> {
    let mut trials = tests::trials![
        bad_input => [
            bad_checkpoints_are_named_and_left_alone,
            checkpoints_of_other_models_are_refused_before_ranks_start,
            other_text_is_refused_unless_allowed,
            run_is_made_longer_and_shorter,
            other_schedule_is_refused_unless_asked_for,
            run_goes_on_with_another_batch_size_to_its_last_sample,
        ],
        refusals => [file_in_place_of_the_folder_is_named, second_run_is_refused_and_the_first_unharmed],
        stopping => [
            sigterm_to_the_launcher_saves,
            sigterm_to_one_rank_saves_on_all,
            sigterm_to_every_process_saves,
            run_in_pieces_of_time_is_the_same_run,
            run_with_other_numbers_of_data_parallel_ranks_sees_each_sample_once,
        ],
    ];
    trials.extend([refusals::not_writable(), refusals::no_space_left()]);
    trials
}
