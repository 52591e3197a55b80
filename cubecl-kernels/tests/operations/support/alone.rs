//! Trials in processes of their own.
//!
//! burn 0.21 goes through all graphs of the process after every backward pass. While one thread does, another may lose
//! a gradient of a graph that it has just made: `grad` is then `None`. Concurrent passes over the graphs meet that most
//! often.

use std::process::Command;

use libtest_mimic::{Failed, Trial};

/// Set in the process of a trial.
const VARIABLE: &str = "KERNEL_TESTS_ALONE";

/// Returns trials that each start this program again for themselves; in that program, the trials as they are.
pub fn alone(trials: Vec<Trial>) -> Vec<Trial> {
    if std::env::var_os(VARIABLE).is_some() {
        return trials;
    }
    let in_process = |trial: Trial| {
        let name = trial.name().to_owned();
        let is_ignored = trial.has_ignored_flag();
        Trial::test(name.clone(), move || run(&name)).with_ignored_flag(is_ignored)
    };
    trials.into_iter().map(in_process).collect()
}

fn run(name: &str) -> Result<(), Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    let command = command
        .env(VARIABLE, "1")
        .args(["--exact", name, "--test-threads", "1"]);
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    if output.status.success() && text.contains("1 passed") {
        Ok(())
    } else {
        Err(format!("{text}\n{}", String::from_utf8_lossy(&output.stderr)).into())
    }
}
