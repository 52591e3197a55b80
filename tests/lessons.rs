//! The lessons, run as their first lines say: several ranks print what one rank prints.

#[allow(dead_code, reason = "the tests of launchers use the rest")]
mod program;

use std::process::Command;
use std::time::Duration;

use anyhow::ensure;
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let test = |name: &'static str, body: fn() -> anyhow::Result<()>| {
        Trial::test(name, move || body().map_err(|error| Failed::from(format!("{error:#}"))))
    };
    let tests = vec![test(
        "05_burn_train_learner_prints_the_metrics_of_one_rank",
        burn_train_learner,
    )];
    libtest_mimic::run(&Arguments::from_args(), tests).exit();
}

/// On two ranks, on three whose shares differ, and resumed.
fn burn_train_learner() -> anyhow::Result<()> {
    let example = program::build("05_burn_train_learner")?;
    let print = |flags: &[&str]| -> anyhow::Result<String> {
        let mut command = Command::new(&example);
        let ended = program::end(program::start(command.args(flags))?, Duration::from_secs(240))?;
        ended.expect_code(0)?;
        Ok(ended.stdout)
    };
    let one = print(&[])?;
    ensure!(one.lines().count() == 8, "four epochs of two kinds:\n{one}");
    let last = one.lines().last().unwrap_or_default();
    let accuracy = numbers(last).last().copied().unwrap_or_default();
    ensure!(accuracy > 60.0, "it does not learn: {last}");
    for ranks in ["2", "3"] {
        expect_same(&one, &print(&["--world-size", ranks])?)?;
    }
    // Resumed after the third epoch, whose checkpoint burn-train has kept, by one rank and by two.
    let resumed = |flags: &[&str]| -> anyhow::Result<String> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().display().to_string();
        print(&["--folder", &path])?;
        print(&[&["--folder", &path, "--resume", "3"], flags].concat())
    };
    let one_resumed = resumed(&[])?;
    expect_same(&one_resumed, &resumed(&["--world-size", "2"])?)
}

/// Every number of a line, in order.
fn numbers(line: &str) -> Vec<f64> {
    line.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// Fails unless the lines are the same, up to the last digit of each number, which may have been rounded the other way.
fn expect_same(left: &str, right: &str) -> anyhow::Result<()> {
    let is_same = |(left, right): (&str, &str)| {
        let (a, b) = (numbers(left), numbers(right));
        a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1.5e-4)
    };
    ensure!(
        left.lines().count() == right.lines().count() && left.lines().zip(right.lines()).all(is_same),
        "the metrics differ:\n{left}\n{right}"
    );
    Ok(())
}
