//! `planted-faults`: plants faults, and demands that the tests turn red.
//!
//! ```sh
//! cargo run -p planted-faults           # all of `faults.json`
//! cargo run -p planted-faults -- norm   # those with "norm" in their names
//! ```
//!
//! Everything runs in a copy of the workspace's sources under its target folder. It is built without faults first, and
//! the trials must be green. Then the faults that are switches are switched on one by one, and those that are patches
//! go in; patches that different trials judge go in together. With a fault each of its trials must fail, and by a
//! comparison: a fault that does not compile, or panics, shows nothing about the tests. What no trial has noticed is
//! listed at the end, and makes the exit code 1.

mod rounds;
mod workspace;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use planted_faults::{Fault, Patch, SWITCH, Test};

use self::workspace::{Copied, INCREMENTAL, Program, run};

/// A build compiles the tests for every backend.
const BUILD_LIMIT: Duration = Duration::from_secs(3600);
const TRIAL_LIMIT: Duration = Duration::from_secs(900);

type Programs = BTreeMap<Test, Program>;

fn main() -> Result<()> {
    let root = root().canonicalize()?;
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let mut faults = planted_faults::read(&root)?;
    faults.retain(|fault| wanted.is_empty() || wanted.iter().any(|name| fault.name.contains(name)));
    ensure!(!faults.is_empty(), "no fault is named like {wanted:?}");

    let copy = Copied::of(&root)?;
    let programs = copy.build(&tests(&faults), BUILD_LIMIT).context("without faults")?;
    check_green(&programs, &faults)?;
    println!("without faults, all is green");

    let mut unnoticed = Vec::new();
    let (patches, switches) = rounds::by_kind(&faults);
    for (fault, switch) in switches {
        unnoticed.extend(judge(&programs, fault, Some(&switch.name))?);
    }
    let rounds = rounds::rounds(patches);
    for (number, round) in rounds.iter().enumerate() {
        println!("patches {} of {}", number + 1, rounds.len());
        for (fault, patch) in round {
            plant(patch, &root, &copy).with_context(|| fault.name.clone())?;
        }
        let planted = round.iter().map(|(fault, _)| *fault);
        let programs = copy.build(&tests(planted.clone()), BUILD_LIMIT).with_context(|| {
            format!(
                "with {:?}",
                planted.clone().map(|fault| &fault.name).collect::<Vec<_>>()
            )
        })?;
        for fault in planted {
            unnoticed.extend(judge(&programs, fault, None)?);
        }
        for (_, patch) in round {
            copy.restore(&root.join(&patch.file))?;
        }
    }
    println!(
        "{} of {} faults were noticed",
        faults.len() - unnoticed.len(),
        faults.len()
    );
    if unnoticed.is_empty() {
        Ok(())
    } else {
        bail!("NOT NOTICED: {unnoticed:?}")
    }
}

/// The workspace that the program was started from.
fn root() -> PathBuf {
    let folder = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&folder).join("../..")
}

fn tests<'f>(faults: impl IntoIterator<Item = &'f Fault>) -> BTreeSet<Test> {
    faults.into_iter().map(|fault| fault.test).collect()
}

fn check_green(programs: &Programs, faults: &[Fault]) -> Result<()> {
    let of_fault = |fault: &'_ Fault| {
        fault
            .trials
            .iter()
            .map(|trial| (fault.test, trial.clone()))
            .collect::<Vec<_>>()
    };
    let trials: BTreeSet<(Test, String)> = faults.iter().flat_map(of_fault).collect();
    for (test, trial) in trials {
        let (passed, output) = run_trial(programs, test, &trial, None)?;
        let ran = output
            .lines()
            .any(|line| line.starts_with("test ") && line.contains("... ok"));
        ensure!(passed && ran, "without a fault, {trial} is not green:\n{output}");
    }
    Ok(())
}

/// Puts a fault into the copy, where others of the same file may be already.
fn plant(patch: &Patch, root: &Path, copy: &Copied) -> Result<()> {
    let path = copy.path(&root.join(&patch.file))?;
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    std::fs::write(&path, patch.planted(&text)?)?;
    Ok(())
}

/// Runs the trials of a fault that is planted, and says of each whether it has turned red; returns the fault's name if
/// one has not.
fn judge<'f>(programs: &Programs, fault: &'f Fault, switch: Option<&str>) -> Result<Option<&'f str>> {
    let mut unnoticed = None;
    for trial in &fault.trials {
        let started = Instant::now();
        let (passed, output) = run_trial(programs, fault.test, trial, switch)?;
        let seconds = started.elapsed().as_secs_f64();
        match fault.test.comparison(&output, &fault.words).filter(|_| !passed) {
            Some(message) => println!("  red         {:<52} {seconds:>5.1} s  {message}", fault.name),
            None => {
                println!("  NOT NOTICED {:<52} {seconds:>5.1} s  by {trial}", fault.name);
                println!("{output}");
                unnoticed = Some(&fault.name[..]);
            }
        }
    }
    Ok(unnoticed)
}

/// Runs a trial: whether it passed, and what was said.
fn run_trial(programs: &Programs, test: Test, trial: &str, switch: Option<&str>) -> Result<(bool, String)> {
    let program = &programs[&test];
    let mut command = Command::new(&program.executable);
    // As cargo runs it.
    command
        .args(["--exact", trial])
        .current_dir(&program.package)
        .env("CARGO_MANIFEST_DIR", &program.package)
        .env(INCREMENTAL.0, INCREMENTAL.1);
    match switch {
        Some(name) => command.env(SWITCH, name),
        None => command.env_remove(SWITCH),
    };
    run(command, TRIAL_LIMIT).with_context(|| format!("the trial {trial}"))
}
