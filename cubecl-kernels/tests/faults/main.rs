//! `planted_faults`: plants faults in the rules of the kernels, and demands that the trials turn red.
//!
//! ```sh
//! cargo run -p kernel-tests --example planted_faults           # all of `faults.json`
//! cargo run -p kernel-tests --example planted_faults -- norm   # those with "norm" in their names
//! ```
//!
//! The faults go into a copy of the workspace's sources under its target folder; those that different trials judge go
//! in together. A copy without faults is built first, and its trials must be green. For each fault one trial at least
//! must fail, and by a comparison: a fault that does not compile, or panics, shows nothing about the tests.

mod list;
mod workspace;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use self::list::{Fault, faults, path_of, planted};
use self::workspace::{Copied, run};

/// A build compiles the tests for every backend.
const BUILD_LIMIT: Duration = Duration::from_secs(3600);
/// A filter leaves a handful of trials.
const TRIALS_LIMIT: Duration = Duration::from_secs(900);

fn main() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let mut faults = faults(&root)?;
    faults.retain(|fault| wanted.is_empty() || wanted.iter().any(|name| fault.name.contains(name)));
    ensure!(!faults.is_empty(), "no fault is named like {wanted:?}");
    let rounds = rounds(faults);
    println!(
        "{} faults in {} rounds",
        rounds.iter().map(Vec::len).sum::<usize>(),
        rounds.len()
    );

    let copy = Copied::of(&root)?;
    let green = copy.build(BUILD_LIMIT).context("without faults")?;
    let filters: BTreeSet<&str> = rounds.iter().flatten().map(|fault| &fault.trials[..]).collect();
    for filter in filters {
        let (passed, output) = trials(&green, filter)?;
        ensure!(
            passed && ran(&output) > 0,
            "without a fault, {filter} is not green:\n{output}"
        );
    }
    println!("without faults, all is green");

    let mut unseen = Vec::new();
    for (number, round) in rounds.iter().enumerate() {
        println!("round {} of {}", number + 1, rounds.len());
        for fault in round {
            plant(fault, &root, &copy)?;
        }
        let binary = copy.build(BUILD_LIMIT).with_context(|| {
            let names: Vec<&str> = round.iter().map(|fault| &fault.name[..]).collect();
            format!("with {names:?}")
        })?;
        for fault in round {
            let started = Instant::now();
            let (passed, output) = trials(&binary, &fault.trials)?;
            let seen = comparison(&output).filter(|_| !passed);
            let seconds = started.elapsed().as_secs_f64();
            match seen {
                Some(message) => println!("  red    {:<36} {seconds:>5.1} s  {message}", fault.name),
                None => {
                    println!("  UNSEEN {:<36} {seconds:>5.1} s", fault.name);
                    println!("{output}");
                    unseen.push(fault.name.clone());
                }
            }
        }
        for fault in round {
            copy.restore(&path_of(fault, &root))?;
        }
    }
    let count = rounds.iter().map(Vec::len).sum::<usize>();
    println!("{} of {count} faults turn the trials red", count - unseen.len());
    if unseen.is_empty() {
        Ok(())
    } else {
        bail!("no trial sees {unseen:?}")
    }
}

/// Shares the faults out: of those in a round, none reaches the trials that another is judged by.
fn rounds(faults: Vec<Fault>) -> Vec<Vec<Fault>> {
    let mut rounds: Vec<Vec<Fault>> = Vec::new();
    for fault in faults {
        let is_apart = |other: &Fault| !fault.reaches(other) && !other.reaches(&fault);
        match rounds.iter_mut().find(|round| round.iter().all(is_apart)) {
            Some(round) => round.push(fault),
            None => rounds.push(vec![fault]),
        }
    }
    rounds
}

/// Puts a fault into the copy, where others of the same file may be already.
fn plant(fault: &Fault, root: &Path, copy: &Copied) -> Result<()> {
    let path = copy.path(&path_of(fault, root))?;
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    std::fs::write(&path, planted(fault, &text)?)?;
    Ok(())
}

/// Runs the trials of a filter: whether all passed, and what was said.
fn trials(binary: &Path, filter: &str) -> Result<(bool, String)> {
    let mut command = std::process::Command::new(binary);
    command.arg(filter);
    run(command, TRIALS_LIMIT).with_context(|| format!("the trials of {filter}"))
}

/// How many trials ran.
fn ran(output: &str) -> usize {
    output
        .lines()
        .filter(|line| line.starts_with("test ") && line.contains("... ok"))
        .count()
}

/// The message of a comparison that failed, where one did and nothing panicked.
fn comparison(output: &str) -> Option<&str> {
    let is_comparison = |line: &&str| line.contains(", expected ") || line.contains("other elements fall");
    let message = output.lines().map(str::trim).find(is_comparison)?;
    (!output.contains("panicked")).then_some(message)
}
