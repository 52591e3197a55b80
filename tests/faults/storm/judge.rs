//! What must come of each fault: in which time, with which exit codes, and whom the launchers name.

use std::collections::HashMap;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::faults::storm::job::End;
use crate::faults::storm::plan::{Fault, Kind};
use crate::faults::storm::worker::{GRACE, SILENCE, TIMEOUT};

/// A death ends the job in this time, on every rank.
const DEATH_LIMIT: Duration = Duration::from_secs(5);
/// The launcher's time between SIGTERM and SIGKILL.
const TERMINATE: Duration = Duration::from_secs(2);
/// Two busy cores, several jobs at once.
const SLACK: Duration = Duration::from_secs(3);
/// How long a rank waits for the store's answer beyond its rendezvous timeout.
const REPLY_SLACK: Duration = Duration::from_secs(5);
/// For the whole of a job that nothing harms: four ranks on two busy cores.
const RUN_LIMIT: Duration = Duration::from_secs(60);

const SECONDARY: i32 = 75;

/// The longest time from the strike to the end.
fn limit(fault: &Fault) -> Duration {
    let at_start = fault.after_step == 0;
    match fault.kind {
        Kind::KillRank(_) | Kind::KillLauncher(_) | Kind::AskLauncher(..) | Kind::AskRank(_) => DEATH_LIMIT,
        Kind::StopRank(_) if !at_start => SILENCE + GRACE + TERMINATE + SLACK,
        Kind::StopRank(_) | Kind::Missing(_) => TIMEOUT + GRACE + TERMINATE + SLACK,
        Kind::StopLauncher | Kind::Cut if !at_start => SILENCE + GRACE + TERMINATE + SLACK,
        Kind::StopLauncher | Kind::Cut => TIMEOUT + REPLY_SLACK + GRACE + TERMINATE + SLACK,
        _ => RUN_LIMIT,
    }
}

/// A job whose time is over, or not.
pub struct Outcome {
    pub ends: Vec<End>,
    /// Process ids of the ranks that came so far.
    pub pids: HashMap<usize, u32>,
    /// From the strike to the end of the last launcher, or of the last rank where the launcher is stopped.
    pub time: Duration,
    pub losses: String,
    pub reference: String,
}

/// Says what is wrong with how a job ended.
pub fn judge(fault: &Fault, outcome: &Outcome) -> anyhow::Result<()> {
    ensure!(
        outcome.time <= limit(fault),
        "takes longer than {:?} to end",
        limit(fault)
    );
    for end in &outcome.ends {
        judge_node(fault, outcome, end).with_context(|| format!("node {}", end.node))?;
    }
    if fault.kind.is_harmless() {
        ensure!(outcome.losses == outcome.reference, "other losses than undisturbed");
    }
    Ok(())
}

fn judge_node(fault: &Fault, outcome: &Outcome, end: &End) -> anyhow::Result<()> {
    let at_start = fault.after_step == 0;
    let node_of = |rank| fault.layout.node_of(rank);
    match fault.kind {
        kind if kind.is_harmless() => {
            expect_codes(end, &[0])?;
            ensure!(!end.stderr.contains("[launcher]"), "the launcher complains");
        }
        Kind::KillRank(rank) if node_of(rank) == end.node => {
            expect_codes(end, &[128 + libc::SIGKILL])?;
            expect_first(end, outcome, rank, &["killed by signal 9 (SIGKILL)"])?;
        }
        Kind::StopRank(rank) if node_of(rank) == end.node => {
            expect_codes(end, &[128 + libc::SIGKILL])?;
            let mut ways = vec!["by the launcher (silent: no heartbeat for "];
            if at_start {
                // Before the first heartbeat: it is missed where the others wait for it.
                ways.extend(["did not register within", "did not come to"]);
            }
            expect_first(end, outcome, rank, &ways)?;
        }
        Kind::Missing(rank) if node_of(rank) == end.node => {
            expect_codes(end, &[128 + libc::SIGTERM, 128 + libc::SIGKILL])?;
            let way = if at_start {
                "did not register within"
            } else {
                "by the launcher (late: its heartbeats arrive, last collective #"
            };
            expect_first(end, outcome, rank, &[way])?;
        }
        Kind::KillRank(rank) => {
            expect_first_elsewhere(end, &[rank], &["dead: ", "killed by signal 9", "ended without"])?
        }
        Kind::StopRank(rank) if at_start => {
            expect_first_elsewhere(
                end,
                &[rank],
                &["silent: ", "did not register within", "did not come to"],
            )?;
        }
        Kind::StopRank(rank) => expect_first_elsewhere(end, &[rank], &["silent: no heartbeat for "])?,
        Kind::Missing(rank) if at_start => expect_first_elsewhere(end, &[rank], &["did not register within"])?,
        Kind::Missing(rank) => expect_first_elsewhere(end, &[rank], &["late: its heartbeats arrive"])?,
        Kind::KillLauncher(node) if node == end.node => {
            ensure!(end.status.signal() == Some(libc::SIGKILL), "{}", end.status);
        }
        Kind::KillLauncher(node) => {
            let ways: &[&str] = match node {
                0 => &["lost the store at "],
                _ => &["dead: ", "ended without", "killed by signal 9"],
            };
            expect_first_elsewhere(end, &ranks_of(fault, node), ways)?;
        }
        Kind::StopLauncher if end.node == 0 => {
            ensure!(!end.status.success(), "{}", end.status);
            let ways = [
                "lost contact with the launcher",
                "lost the store at",
                "cannot reach the rendezvous store at",
            ];
            let is_told = ways[..if at_start { 3 } else { 1 }]
                .iter()
                .any(|way| end.stderr.contains(way));
            ensure!(is_told, "no rank says that it lost the launcher");
        }
        Kind::StopLauncher => {
            expect_first_elsewhere(end, &[0], &["out of reach: lost contact with host 10.213.77.1 "])?
        }
        Kind::Cut if end.node == 0 => {
            let ways: &[&str] = if !at_start {
                &["silent: no heartbeat for "]
            } else {
                &[
                    "silent: ",
                    "did not register within",
                    "did not come to",
                    "its connection to ",
                ]
            };
            expect_first_elsewhere(end, &ranks_of(fault, 1), ways)?;
        }
        Kind::Cut => expect_first_elsewhere(end, &[0], &["out of reach: lost contact with host 10.213.77.1 "])?,
        Kind::AskLauncher(node, signal) if node == end.node => {
            expect_codes(end, &[128 + signal])?;
            let line = end.stderr.lines().last().unwrap_or_default();
            ensure!(line.contains(&format!("interrupted by signal {signal} ")), "{line:?}");
            ensure!(
                at_start || line.ends_with("ranks have ended"),
                "not in good order: {line:?}"
            );
        }
        Kind::AskLauncher(_, signal) if !at_start => expect_good_order(end, signal)?,
        Kind::AskRank(_) if !at_start => expect_good_order(end, libc::SIGTERM)?,
        // At the start ranks do not listen to signals yet: they may end at once.
        Kind::AskLauncher(node, signal) => expect_good_order(end, signal).or_else(|_| {
            expect_first_elsewhere(end, &ranks_of(fault, node), &["dead: ", "killed by", "ended without"])
        })?,
        Kind::AskRank(rank) if node_of(rank) == end.node => expect_good_order(end, libc::SIGTERM).or_else(|_| {
            expect_codes(end, &[128 + libc::SIGTERM])?;
            expect_first(end, outcome, rank, &["killed by signal 15 (SIGTERM)"])
        })?,
        Kind::AskRank(rank) => expect_good_order(end, libc::SIGTERM)
            .or_else(|_| expect_first_elsewhere(end, &[rank], &["dead: ", "killed by", "ended without"]))?,
        Kind::PauseRank(..) | Kind::PauseLauncher(..) | Kind::Blip(_) | Kind::Garbage(_) | Kind::Late(..) => {}
    }
    Ok(())
}

fn ranks_of(fault: &Fault, node: usize) -> Vec<usize> {
    let ranks = 0..fault.layout.world_size;
    ranks.filter(|&rank| fault.layout.node_of(rank) == node).collect()
}

fn expect_codes(end: &End, codes: &[i32]) -> anyhow::Result<()> {
    let code = end.status.code();
    ensure!(
        code.is_some_and(|code| codes.contains(&code)),
        "exit code {code:?}, expected {codes:?}"
    );
    Ok(())
}

/// The ranks stopped after the same step, and the launcher says so.
fn expect_good_order(end: &End, signal: i32) -> anyhow::Result<()> {
    expect_codes(end, &[128 + signal])?;
    let lines: Vec<_> = end.stderr.lines().collect();
    let said = format!("ranks stopped in good order, asked by signal {signal} ");
    ensure!(lines.len() == 1 && lines[0].contains(&said), "not in good order");
    Ok(())
}

/// Every line of the launcher that names a first cause names this rank of its node, and the last one says what it did.
fn expect_first(end: &End, outcome: &Outcome, rank: usize, ways: &[&str]) -> anyhow::Result<()> {
    let pid = outcome.pids.get(&rank).context("the rank came")?;
    let named = format!("[launcher] rank {rank} (pid {pid})");
    let mut lines = end.stderr.lines().filter(|line| line.starts_with("[launcher] rank "));
    ensure!(
        lines.all(|line| line.starts_with(&named)),
        "another rank than {rank} is named"
    );
    let last = end.stderr.lines().last().unwrap_or_default();
    let first = last.split("; then ").next().unwrap_or_default();
    ensure!(
        first.starts_with(&format!("{named} failed first: ")) && ways.iter().any(|way| first.contains(way)),
        "rank {rank} is not named first with {ways:?}"
    );
    Ok(())
}

/// The launcher names one of these ranks, on the other node, before its own.
fn expect_first_elsewhere(end: &End, ranks: &[usize], ways: &[&str]) -> anyhow::Result<()> {
    expect_codes(end, &[SECONDARY])?;
    let mut lines = end.stderr.lines().filter(|line| line.starts_with("[launcher] "));
    let is_named = |line: &str| {
        let beginnings = ranks.iter().map(|rank| format!("[launcher] rank {rank} on host "));
        beginnings.into_iter().any(|beginning| line.starts_with(&beginning))
    };
    ensure!(lines.all(is_named), "another rank than {ranks:?} is named");
    let last = end.stderr.lines().last().unwrap_or_default();
    let first = last.split("; here ").next().unwrap_or_default();
    ensure!(
        ways.iter()
            .any(|way| first.contains(&format!("(another node) failed first: {way}"))),
        "no rank of {ranks:?} is named first with {ways:?}"
    );
    Ok(())
}
