//! `recorded-runs`: what the bundled models' training computes, kept in `records.jsonl`, to compare a later state of
//! the project with, such as one on another version of burn.
//!
//! ```sh
//! cargo build --release --example compare_sharding
//! cargo run -p recorded-runs -- check target/release/examples/compare_sharding          # with records.jsonl
//! cargo run -p recorded-runs -- compare OLD/compare_sharding NEW/compare_sharding       # whole tensors of both
//! cargo run -p recorded-runs -- write target/release/examples/compare_sharding          # a new records.jsonl
//! ```
//!
//! A run is a job of ranks of `compare_sharding` that record each step. Of every tensor a hash, the norm and sixteen
//! values are kept. Bits depend on the processor's instructions, so other bits are counted, and differences beyond
//! rounding fail. `--filter TEXT` takes the runs whose names have it.

mod difference;
mod record;
mod runs;

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use burn_megatron_comm::launch::{Launcher, Prefix};
use clap::{Parser, Subcommand};

use self::difference::Difference;
use self::record::{Record, tensors};
use self::runs::{COMMON, Run, all, world_size};

/// Variable with the program that a rank is.
const PROGRAM: &str = "RECORDED_RUNS_PROGRAM";

/// Record what training runs compute, or compare it
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    action: Action,
    /// Take only the runs whose names have this text
    #[arg(long, global = true, default_value = "")]
    filter: String,
    /// File of the records
    #[arg(long, global = true, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/records.jsonl"))]
    records: PathBuf,
}

#[derive(Subcommand)]
enum Action {
    /// Run and write the records
    Write { compare_sharding: PathBuf },
    /// Run and compare with the records
    Check { compare_sharding: PathBuf },
    /// Run two programs and compare whole tensors
    Compare { old: PathBuf, new: PathBuf },
}

fn main() -> Result<()> {
    if let Some(program) = std::env::var_os(PROGRAM) {
        let error = Command::new(&program).args(std::env::args_os().skip(1)).exec();
        bail!("{} does not start: {error}", Path::new(&program).display());
    }
    let Arguments {
        action,
        filter,
        records,
    } = Arguments::parse();
    let mut runs = all();
    runs.retain(|run| run.name.contains(&filter));
    ensure!(!runs.is_empty(), "no run is named like {filter:?}");
    match action {
        Action::Write { .. } if !filter.is_empty() => bail!("all records are written at once: leave out --filter"),
        Action::Write { compare_sharding } => write(&runs, &compare_sharding, &records),
        Action::Check { compare_sharding } => check(&runs, &compare_sharding, &records),
        Action::Compare { old, new } => compare(&runs, &old, &new),
    }
}

/// Trains, and returns the folder of what the ranks have recorded.
fn train(run: &Run, program: &Path) -> Result<tempfile::TempDir> {
    let program = program.canonicalize().with_context(|| program.display().to_string())?;
    let folder = tempfile::tempdir()?;
    let worker = [
        "--worker-layout".into(),
        run.layout.into(),
        "--worker-folder".into(),
        folder.path().into(),
    ];
    let flags = COMMON
        .split_whitespace()
        .chain(run.flags.iter().copied())
        .map(std::ffi::OsString::from);
    let summary = Launcher::new(world_size(run.layout))
        .arguments(flags.chain(worker))
        .environment(PROGRAM, program)
        .prefix(Prefix::AllButRankZero)
        .run()?;
    ensure!(summary.is_success(), "the run {:?} failed", run.name);
    Ok(folder)
}

fn write(runs: &[Run], program: &Path, records: &Path) -> Result<()> {
    // Written whole or not at all.
    let folder = records.parent().context("the records have no folder")?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    for run in runs {
        let record = Record::read(&run.name, train(run, program)?.path())?;
        ensure!(record.is_finite(), "{:?} has numbers that are not finite", run.name);
        println!("{:32} loss {}", run.name, record.losses.last().context("no step")?);
        writeln!(file, "{}", serde_json::to_string(&record)?)?;
    }
    file.persist(records)?;
    Ok(())
}

fn check(runs: &[Run], program: &Path, records: &Path) -> Result<()> {
    let text = std::fs::read_to_string(records).with_context(|| records.display().to_string())?;
    let recorded: Vec<Record> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let names: Vec<String> = all().into_iter().map(|run| run.name).collect();
    if let Some(Record { run, .. }) = recorded.iter().find(|record| !names.contains(&record.run)) {
        bail!("{run:?} is recorded, and no run any more");
    }
    let mut failed = 0;
    for run in runs {
        let old = recorded.iter().find(|record| record.run == run.name);
        let old = old.with_context(|| format!("{:?} is not in {}", run.name, records.display()))?;
        let new = Record::read(&run.name, train(run, program)?.path())?;
        failed += usize::from(!report(run, Difference::between(old, &new), old.tensors.len()));
    }
    ensure!(
        failed == 0,
        "{failed} of {} runs do not compute what was recorded",
        runs.len()
    );
    println!("{} runs compute what was recorded", runs.len());
    Ok(())
}

/// Prints how far a run is from its record, and returns whether rounding explains it.
fn report(run: &Run, difference: Result<Difference, String>, tensors: usize) -> bool {
    let difference = match difference {
        Ok(difference) => difference,
        Err(error) => {
            println!("{:32} FAILED: {error}", run.name);
            return false;
        }
    };
    let is_rounding = difference.is_rounding(run.dtype);
    let Difference {
        other_bits,
        loss,
        gradient_norm,
        tensor,
        worst,
    } = difference;
    match other_bits {
        0 if loss == 0.0 && gradient_norm == 0.0 => println!("{:32} the same bits", run.name),
        _ => {
            let verdict = if is_rounding { "rounding" } else { "FAILED" };
            let bits = format!("other bits in {other_bits} of {tensors} tensors");
            println!(
                "{:32} {verdict}: {bits}, loss {loss:.1e}, gradient norm {gradient_norm:.1e}, {worst} {tensor:.1e}",
                run.name
            );
        }
    }
    is_rounding
}

/// Prints of each run the tensors that differ most.
fn compare(runs: &[Run], old: &Path, new: &Path) -> Result<()> {
    for run in runs {
        let (old, new) = (train(run, old)?, train(run, new)?);
        let (old, new) = (tensors(old.path())?, tensors(new.path())?);
        ensure!(
            old.keys().eq(new.keys()),
            "the tensors of {:?} have other names",
            run.name
        );
        let mut distances: Vec<(f64, &str)> = Vec::new();
        for ((name, old), new) in old.iter().zip(new.values()) {
            ensure!(
                old.len() == new.len(),
                "{name} has {} elements, and {}",
                old.len(),
                new.len()
            );
            let distance = record::norm(old.iter().zip(new).map(|(old, new)| old - new));
            if old.iter().zip(new).any(|(old, new)| old.to_bits() != new.to_bits()) {
                distances.push((
                    distance / record::norm(old.iter().copied()).max(f64::MIN_POSITIVE),
                    name,
                ));
            }
        }
        distances.sort_by(|one, other| other.0.total_cmp(&one.0));
        println!(
            "{:32} other bits in {} of {} tensors",
            run.name,
            distances.len(),
            old.len()
        );
        for (distance, name) in distances.iter().take(5) {
            println!("    {distance:9.1e}  {name}");
        }
    }
    Ok(())
}
