//! `planted-faults`: plants faults, and demands that the tests turn red.
//!
//! ```sh
//! cargo run -p planted-faults                  # all of `faults.json`
//! cargo run -p planted-faults -- norm          # those with "norm" in their names
//! cargo run -p planted-faults -- --shard 1/4   # the first quarter of the builds that all take
//! cargo run -p planted-faults -- --check       # none: which of them the trials of `.ci/test` would notice
//! ```
//!
//! Everything runs in a copy of the workspace's sources under its target folder. It is built without faults first, and
//! the trials must be green. Then the patches go in; those that different trials judge go in together. With a fault
//! each of its trials must fail, and by a comparison: a fault that does not compile, or panics, shows nothing about the
//! tests. What no trial has noticed is listed at the end, and makes the exit code 1.

mod listed;
mod rounds;
mod workspace;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use planted_faults::{Fault, Patch, Test};

use self::rounds::Round;
use self::workspace::{ALL, Copied, INCREMENTAL, Programs, run};

/// A build compiles the tests, and all that they are of.
const BUILD_LIMIT: Duration = Duration::from_secs(3600);
const TRIAL_LIMIT: Duration = Duration::from_secs(900);

fn main() -> Result<()> {
    let root = root().canonicalize()?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut faults = planted_faults::read(&root)?;
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--check"] => listed::check(&root, &faults),
        ["--shard", shard] => plant_all(&rounds::shard(&rounds::rounds(&faults), shard)?, &root),
        names => {
            faults.retain(|fault| names.is_empty() || names.iter().any(|name| fault.name.contains(name)));
            ensure!(!faults.is_empty(), "no fault is named like {names:?}");
            plant_all(&rounds::rounds(&faults), &root)
        }
    }
}

fn plant_all(rounds: &[Round<'_>], root: &Path) -> Result<()> {
    let faults = rounds.concat();
    let copy = Copied::of(root)?;
    let programs = copy.build(&tests(&faults), BUILD_LIMIT).context("without faults")?;
    check_green(&programs, &faults)?;
    println!("without faults, all is green");

    let mut unnoticed = Vec::new();
    for (number, round) in rounds.iter().enumerate() {
        println!("patches {} of {}", number + 1, rounds.len());
        for fault in round {
            plant(fault.patch(), root, &copy).with_context(|| fault.name.clone())?;
        }
        let programs = copy.build(&tests(round), BUILD_LIMIT).with_context(|| {
            let names: Vec<&String> = round.iter().map(|fault| &fault.name).collect();
            format!("with {names:?}")
        })?;
        for fault in round {
            unnoticed.extend(judge(&programs, fault)?);
        }
        for fault in round {
            copy.restore(&root.join(&fault.patch().file))?;
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

fn tests(faults: &[&Fault]) -> BTreeSet<Test> {
    faults.iter().map(|fault| fault.test).collect()
}

fn check_green(programs: &Programs, faults: &[&Fault]) -> Result<()> {
    let of_fault = |fault: &&'_ Fault| {
        fault
            .trials
            .iter()
            .map(|trial| (fault.test, trial.clone()))
            .collect::<Vec<_>>()
    };
    let trials: BTreeSet<(Test, String)> = faults.iter().flat_map(of_fault).collect();
    for (test, trial) in trials {
        let (passed, output) = run_trial(programs, test, &trial)?;
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
fn judge<'f>(programs: &Programs, fault: &'f Fault) -> Result<Option<&'f str>> {
    let mut unnoticed = None;
    for trial in &fault.trials {
        let started = Instant::now();
        let (passed, output) = run_trial(programs, fault.test, trial)?;
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
fn run_trial(programs: &Programs, test: Test, trial: &str) -> Result<(bool, String)> {
    let run_with = |settings: Option<(&str, &str)>| {
        let mut command = programs[&test].command();
        command
            .args(["--include-ignored", "--exact"])
            .arg(format!("{}{trial}", test.room()))
            .env(INCREMENTAL.0, INCREMENTAL.1)
            .envs(settings);
        run(command, TRIAL_LIMIT).with_context(|| format!("the trial {trial}"))
    };
    match run_with(None)? {
        // One of those that only `.ci/full` runs.
        (_, output) if output.contains("running 0 tests") => run_with(Some(ALL)),
        usual => Ok(usual),
    }
}
