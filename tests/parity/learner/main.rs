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
    harness::main(
        cases::trials,
        harness::Ranks {
            before_join: cases::before_join,
            change_environment: cases::change_environment,
            run: cases::run,
        },
    )
}
