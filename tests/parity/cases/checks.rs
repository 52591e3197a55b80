//! Checks: claims that ranks try in several layouts and types.

use anyhow::{Context as _, ensure};
use libtest_mimic::Trial;

use super::comparison::Layout;
use tests::harness::{Case, Job};

pub const BOTH_TYPES: &[&str] = &["f64", "f32"];
pub const F64: &[&str] = &["f64"];
pub const F32: &[&str] = &["f32"];

/// A claim, the function that checks it on a rank, and the layouts it is checked in.
pub struct Check<S> {
    pub name: &'static str,
    pub run: fn(&S) -> anyhow::Result<()>,
    pub layouts: &'static [Layout],
    pub dtypes: &'static [&'static str],
}

/// Checks, each with its layouts and types, that functions of their names make, or others.
macro_rules! checks {
    (@run $name:ident) => {
        $name
    };
    (@run $name:ident $run:expr) => {
        $run
    };
    ($($name:ident: $layouts:expr, $dtypes:expr $(=> $run:expr)?;)*) => {
        &[$(crate::parity::cases::checks::Check {
            name: stringify!($name),
            run: checks!(@run $name $($run)?),
            layouts: $layouts,
            dtypes: $dtypes,
        }),*]
    };
}
pub(crate) use checks;

/// Checks that something is refused with these words.
pub fn expect_refused<T, E: Into<anyhow::Error>>(result: Result<T, E>, words: &str) -> anyhow::Result<()> {
    let error: anyhow::Error = result.err().context("it was accepted")?.into();
    let message = format!("{error:#}");
    ensure!(message.contains(words), "{message:?}");
    Ok(())
}

/// A trial of each check in each of its layouts and types, by a case of this name.
pub fn trials<S: 'static>(case: &str, checks: impl Iterator<Item = &'static Check<S>>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for check in checks {
        for layout in check.layouts {
            for dtype in check.dtypes {
                let case = layout.describe(Case::new("parity", case).with("check", check.name), dtype);
                let job = Job::new(case.with("chunks", layout.chunks), layout.world_size());
                trials.push(job.succeeds(format!("{}_{}_{dtype}", check.name, layout.name)));
            }
        }
    }
    trials
}

/// Runs the check that a case names.
pub fn run<S: 'static>(case: &Case, checks: impl Iterator<Item = &'static Check<S>>, place: &S) -> anyhow::Result<()> {
    let name: String = case.setting("check")?;
    let found = checks
        .map(|check| (check.name, check.run))
        .find(|(found, _)| *found == name);
    let (_, run) = found.with_context(|| format!("there is no check {name}"))?;
    run(place)
}
