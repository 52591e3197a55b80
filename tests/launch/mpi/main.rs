//! The engine over MPI under a real `mpirun`: the contract of the engines, `pretrain_gpt` with the losses of shared
//! memory, and how a job ends when a rank fails.
//!
//! `mpirun` starts this program as the ranks; [`ranks`] is what they do. What cannot run for want of `mpirun` or of the
//! feature `mpi` counts as ignored, and says so.

#[cfg(feature = "mpi")]
mod ranks;

use std::collections::BTreeSet;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use burn_megatron_comm::collectives::tests::CASES;
use libtest_mimic::{Arguments, Failed, Trial};
use program::{Ended, FOUR_RANKS, end, flags, is_installed, losses, pretrain_gpt, start};
use tempfile::TempDir;
use tests::program;

/// Cases of a group of one, which has no engine of its own.
const OF_ONE_RANK: [&str; 3] = [
    "a_group_of_one_takes_calls_of_any_thread",
    "one_rank_matches_the_model",
    "shared_buffers_of_one_rank_match_the_model",
];

/// What a rank does, in its environment.
const ROLE: &str = "BURN_MEGATRON_TEST_MPI";
const LIMIT: Duration = Duration::from_secs(240);
const STEPS: usize = 4;

fn main() -> ExitCode {
    #[cfg(feature = "mpi")]
    if let Ok(role) = std::env::var(ROLE) {
        return ranks::run(&role);
    }
    let trials = vec![
        needs_mpi("every_case_of_the_contract_holds", every_case_of_the_contract_holds),
        needs_mpi("losses_are_those_of_shared_memory", losses_are_those_of_shared_memory),
        needs_mpi("a_process_without_mpirun_says_so", a_process_without_mpirun_says_so),
        needs_mpi(
            "another_number_than_in_mpi_is_named",
            another_number_than_in_mpi_is_named,
        ),
        needs_mpi(
            "a_rank_that_stays_away_from_mpi_is_named",
            a_rank_that_stays_away_from_mpi_is_named,
        ),
        needs_mpi("a_rank_that_fails_is_named", a_rank_that_fails_is_named),
        needs_mpi(
            "a_rank_that_hangs_in_mpi_init_says_so",
            a_rank_that_hangs_in_mpi_init_says_so,
        ),
        needs_mpi(
            "a_rank_that_hangs_in_mpi_finalize_says_so",
            a_rank_that_hangs_in_mpi_finalize_says_so,
        ),
        without_mpi(
            "a_program_without_mpi_says_how_to_build_it",
            a_program_without_mpi_says_how_to_build_it,
        ),
    ];
    let mut arguments = Arguments::from_args();
    // Each takes all cores.
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A trial that is ignored, aloud, without the feature or `mpirun`.
fn needs_mpi(name: &str, test: fn() -> anyhow::Result<()>) -> Trial {
    let why_not = match (cfg!(feature = "mpi"), is_installed("mpirun")) {
        (false, _) => Some("the tests are built without --features mpi"),
        (true, false) => Some("mpirun is not in PATH"),
        (true, true) => None,
    };
    if let Some(why) = why_not {
        eprintln!("{name} is ignored: {why}");
    }
    Trial::test(name, move || test().map_err(failed)).with_ignored_flag(why_not.is_some())
}

/// A trial that is ignored, aloud, with the feature.
fn without_mpi(name: &str, test: fn() -> anyhow::Result<()>) -> Trial {
    let has_mpi = cfg!(feature = "mpi");
    if has_mpi {
        eprintln!("{name} is ignored: the tests are built with --features mpi");
    }
    Trial::test(name, move || test().map_err(failed)).with_ignored_flag(has_mpi)
}

fn failed(error: anyhow::Error) -> Failed {
    format!("{error:#}").into()
}

/// Returns a command that starts `n` ranks of the program appended to it.
fn mpirun(n: usize) -> Command {
    let mut command = Command::new("mpirun");
    command.args(["--allow-run-as-root", "--oversubscribe", "-n", &n.to_string()]);
    command.env("RAYON_NUM_THREADS", "1");
    command
}

/// Runs this program on `n` ranks in a role.
fn run_role(role: &str, n: usize) -> anyhow::Result<Ended> {
    let mut command = mpirun(n);
    command.arg(std::env::current_exe()?).env(ROLE, role);
    end(start(&mut command)?, LIMIT)
}

/// Each case runs at the number of ranks that it asks for; together the runs have every case.
fn every_case_of_the_contract_holds() -> anyhow::Result<()> {
    let mut held = BTreeSet::new();
    for n in [2, 3, 4] {
        let ended = run_role("contract", n)?;
        ensure!(
            ended.code == Some(0),
            "{n} ranks: exit code {:?}\n{}{}",
            ended.code,
            ended.stdout,
            ended.stderr
        );
        let names = ended.stdout.lines().filter_map(|line| line.strip_prefix("held: "));
        held.extend(names.map(str::to_owned));
    }
    let left_out: Vec<_> = CASES
        .iter()
        .map(|case| case.name)
        .filter(|name| !held.contains(*name) && !OF_ONE_RANK.contains(name))
        .collect();
    ensure!(left_out.is_empty(), "no run had {left_out:?}");
    Ok(())
}

fn losses_are_those_of_shared_memory() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let program = pretrain_gpt()?;
    let run = |engine: &str| -> anyhow::Result<Vec<u64>> {
        let log = folder.path().join(engine);
        let mut command = mpirun(4);
        command.arg(&program).args(flags(STEPS)).args(FOUR_RANKS);
        command.arg("--log-jsonl").arg(&log).env("BURN_MEGATRON_ENGINE", engine);
        end(start(&mut command)?, LIMIT)?.expect_code(0)?;
        Ok(losses(&log)?.into_iter().map(f64::to_bits).collect())
    };
    let (over_mpi, over_memory) = (run("mpi")?, run("shared-memory")?);
    ensure!(over_mpi.len() == STEPS, "{} losses, expected {STEPS}", over_mpi.len());
    ensure!(
        over_mpi == over_memory,
        "the bits differ: {over_mpi:x?} and {over_memory:x?}"
    );
    Ok(())
}

/// Runs `pretrain_gpt` by its own launcher with the engine over MPI, and returns how it fails.
fn without_mpirun() -> anyhow::Result<Ended> {
    let mut command = Command::new(pretrain_gpt()?);
    command
        .args(flags(STEPS))
        .args(FOUR_RANKS)
        .env("BURN_MEGATRON_ENGINE", "mpi");
    let ended = end(start(&mut command)?, LIMIT)?;
    ensure!(ended.code != Some(0), "it succeeds:\n{}", ended.stderr);
    Ok(ended)
}

fn a_process_without_mpirun_says_so() -> anyhow::Result<()> {
    without_mpirun()?
        .expect_line("this process was not started by mpirun")
        .map(drop)
}

fn a_program_without_mpi_says_how_to_build_it() -> anyhow::Result<()> {
    without_mpirun()?.expect_line("build it with --features mpi").map(drop)
}

fn another_number_than_in_mpi_is_named() -> anyhow::Result<()> {
    let ended = run_role("other_numbers", 2)?;
    ensure!(ended.code != Some(0), "it succeeds:\n{}", ended.stdout);
    ended
        .expect_line("MPI has this process as rank 0 of 2, the job as rank 1 of 2")
        .map(drop)
}

fn a_rank_that_stays_away_from_mpi_is_named() -> anyhow::Result<()> {
    run_role("stays_away", 3)?.expect_code(0)
}

/// Not the rank that meets the failure, nor MPI, has the last word: the first cause is in the output.
fn a_rank_that_fails_is_named() -> anyhow::Result<()> {
    let ended = run_role("fails", 3)?;
    ensure!(ended.code.is_some_and(|code| code != 0), "exit code {:?}", ended.code);
    ended
        .expect_line("[rank 1 on host")
        .with_context(|| "rank 1 does not say that it failed")?;
    ended.expect_line("failed: planted").map(drop)
}

fn a_rank_that_hangs_in_mpi_init_says_so() -> anyhow::Result<()> {
    a_hanging_rank_says_so(
        "hangs_at_the_beginning",
        "MPI_Init has not returned within 3s, although all ranks of the job were about to call it",
    )
}

fn a_rank_that_hangs_in_mpi_finalize_says_so() -> anyhow::Result<()> {
    a_hanging_rank_says_so(
        "hangs_at_the_end",
        "rank 1: MPI_Finalize has not returned within 3s, although all ranks have come to their end",
    )
}

fn a_hanging_rank_says_so(role: &str, line: &str) -> anyhow::Result<()> {
    let start = Instant::now();
    let ended = run_role(role, 2)?;
    ensure!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    ensure!(ended.code.is_some_and(|code| code != 0), "exit code {:?}", ended.code);
    ended.expect_line(line).map(drop)
}
