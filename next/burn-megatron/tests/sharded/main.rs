//! burn's own modules, unmodified, trained on several ranks by the placement of their parameters, against one rank.
//!
//! Each trial starts this program again: as the launcher of a case, which starts it as each of its ranks.

mod cases;
mod job;
mod models;
mod training;
mod wrapped;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    match job::case() {
        Some(case) => burn_megatron::run(cases::ranks(&case), |world| cases::play(&case, world)),
        None => libtest_mimic::run(&Arguments::from_args(), cases::trials()).exit_code(),
    }
}
