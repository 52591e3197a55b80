//! burn-train's `Learner` on several ranks against burn-train's own in one process: metrics, parameters, checkpoints,
//! stopping; and `average_gradients`.
//!
//! Every case runs in real processes; see [`harness`].

mod cases;
mod net;
mod recording;

use std::process::ExitCode;

use tests::harness;

fn main() -> ExitCode {
    match harness::role() {
        harness::Role::Runner => {
            let arguments = libtest_mimic::Arguments::from_args();
            libtest_mimic::run(&arguments, tests::sharpest(cases::trials())).exit_code()
        }
        harness::Role::Job(world_size) => harness::launch(world_size),
        harness::Role::Rank(case) => harness::run_rank(
            &case,
            harness::Ranks {
                before_join: cases::before_join,
                change_environment: cases::change_environment,
                run: cases::run,
            },
        ),
    }
}
