//! Which faults `.ci/test` sees: those that are judged by a trial that it runs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use planted_faults::{Fault, Test};

use crate::workspace::{ALL, Program, build, cargo, run};

/// After `.ci/test`, all is built.
const BUILD_LIMIT: Duration = Duration::from_secs(3600);
const LIST_LIMIT: Duration = Duration::from_secs(60);

/// The trials of a program.
struct Trials {
    /// Those that `.ci/test` runs.
    run: BTreeSet<String>,
    /// Those of `.ci/full`, too.
    known: BTreeSet<String>,
}

/// Prints the faults that only `.ci/full` sees, by the lists of trials of the workspace's programs.
///
/// # Errors
/// When a trial of a fault exists nowhere, or `.ci/test` sees no fault of a folder of sources or by a test.
pub fn check(root: &Path, faults: &[Fault]) -> Result<()> {
    let mut cargo = cargo();
    cargo.current_dir(root);
    let programs = build(cargo, &faults.iter().map(|fault| fault.test).collect(), BUILD_LIMIT)?;
    let trials = programs
        .iter()
        .map(|(test, program)| Ok((*test, trials(*test, program)?)));
    judge(faults, &trials.collect::<Result<_>>()?)
}

fn trials(test: Test, program: &Program) -> Result<Trials> {
    let list = |arguments: &[&str], is_all: bool| {
        let mut command = program.command();
        command.arg("--list").args(arguments).env_remove(ALL.0);
        if is_all {
            command.env(ALL.0, ALL.1);
        }
        let (is_listed, output) = run(command, LIST_LIMIT)?;
        ensure!(is_listed, "{program:?} lists no trials:\n{output}");
        let listed = output.lines().filter_map(|line| line.strip_suffix(": test"));
        let names = listed.filter_map(|name| name.strip_prefix(test.room()));
        Ok(names.map(str::to_owned).collect::<BTreeSet<_>>())
    };
    let (usual, ignored) = (list(&[], false)?, list(&["--ignored"], false)?);
    Ok(Trials {
        run: &usual - &ignored,
        known: &usual | &list(&[], true)?,
    })
}

fn judge(faults: &[Fault], trials: &BTreeMap<Test, Trials>) -> Result<()> {
    let mut unknown = Vec::new();
    let mut is_seen_of = BTreeMap::new();
    for fault in faults {
        let Trials { run, known } = &trials[&fault.test];
        unknown.extend(fault.trials.iter().filter(|trial| !known.contains(*trial)));
        let is_seen = fault.trials.iter().any(|trial| run.contains(trial));
        if !is_seen {
            println!("only .ci/full sees the fault {:?}", fault.name);
        }
        let test = format!("{:?}", fault.test);
        for kind in [folder(&fault.patch().file).to_owned(), test] {
            *is_seen_of.entry(kind).or_insert(false) |= is_seen;
        }
    }
    ensure!(unknown.is_empty(), "no test has the trials {unknown:?}");
    is_seen_of.retain(|_, is_seen| !*is_seen);
    let unseen = is_seen_of.into_keys().collect::<Vec<_>>();
    ensure!(unseen.is_empty(), ".ci/test sees no planted fault of {unseen:?}");
    Ok(())
}

/// A crate's folder of sources that a file is in: an operation, or an area of the library.
fn folder(file: &str) -> &str {
    let start = file.find("/src/").map_or(0, |start| start + "/src/".len());
    let end = file[start..].find('/').map_or(file.len(), |end| start + end);
    &file[..end]
}

#[cfg(test)]
mod tests {
    use planted_faults::{Kind, Patch};

    use super::*;

    fn fault(file: &str, trials: &[&str]) -> Fault {
        Fault {
            name: file.to_owned(),
            kind: Kind::Patch(Patch {
                file: file.to_owned(),
                from: String::new(),
                to: String::new(),
                reach: Vec::new(),
            }),
            test: Test::Operations,
            trials: trials.iter().map(|&trial| trial.to_owned()).collect(),
            words: Vec::new(),
        }
    }

    fn error_of(faults: &[Fault]) -> Option<String> {
        let set = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let trials = Trials {
            run: set(&["small", "odd"]),
            known: set(&["small", "odd", "large"]),
        };
        let result = judge(faults, &[(Test::Operations, trials)].into());
        result.err().map(|error| error.to_string())
    }

    #[test]
    fn every_folder_has_a_fault_that_the_usual_trials_see() {
        let softmax = |trials| fault("kernels/src/softmax/flex/rows.rs", trials);
        let norm = fault("kernels/src/norm/flex.rs", &["odd"]);
        assert_eq!(error_of(&[norm.clone(), softmax(&["large", "small"])]), None);
        assert_eq!(
            error_of(&[norm.clone(), softmax(&["large"]), softmax(&["small"])]),
            None
        );
        assert_eq!(
            error_of(&[norm.clone(), softmax(&["large"])]).as_deref(),
            Some(".ci/test sees no planted fault of [\"kernels/src/softmax\"]")
        );
        assert_eq!(
            error_of(&[norm, softmax(&["small", "smal"])]).as_deref(),
            Some("no test has the trials [\"smal\"]")
        );
    }

    #[test]
    fn no_fault_of_a_test_is_left_to_the_release() {
        assert_eq!(
            error_of(&[fault("kernels/src/norm/flex.rs", &["large"])]).as_deref(),
            Some(".ci/test sees no planted fault of [\"Operations\", \"kernels/src/norm\"]")
        );
    }
}
