//! One fault in one job: starts it, strikes, waits, and judges how it ended.

use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use tests::processes::{Process, send, wait_until};
use tests::references::References;

use crate::faults::storm::job::{END_LIMIT, End, Job, indented};
use crate::faults::storm::judge::{self, Outcome};
use crate::faults::storm::plan::{Fault, Kind, Layout, STEPS};
use crate::faults::storm::untrusted_clients::TARGET;

/// Longest wait for what must come before a fault can strike.
const READY_LIMIT: Duration = Duration::from_secs(40);

/// The losses of undisturbed jobs.
pub type LossesOfLayouts = References<Layout, String>;

fn undisturbed(layout: Layout) -> anyhow::Result<String> {
    let mut job = Job::start(layout, STEPS, None)?;
    let ends = job.wait_for_launchers()?;
    ensure!(
        ends.iter().all(|end| end.status.success()),
        "the undisturbed job of {layout} fails: {ends:?}"
    );
    let losses = job.losses();
    ensure!(losses.lines().count() as u64 == STEPS, "{losses}");
    Ok(losses)
}

/// Lets a fault strike a job; returns how long the job then took to end.
pub fn run(fault: &Fault, references: &LossesOfLayouts) -> anyhow::Result<Duration> {
    let reference = if fault.kind.is_harmless() {
        references.of(fault.layout, || undisturbed(fault.layout))?.to_string()
    } else {
        String::new()
    };
    let mut job = Job::start(fault.layout, fault.steps(), fault.sleeper())?;
    wait_until_ready(&job, fault)?;
    sleep(fault.moment);
    let struck = Instant::now();
    strike(&job, fault)?;
    let mut ranks_ended = None;
    if fault.kind == Kind::StopLauncher {
        wait_until(END_LIMIT, || job.rank_processes().is_empty());
        ranks_ended = Some(struck.elapsed());
        send(job.launcher(0), libc::SIGCONT);
    }
    let ends = job.wait_for_launchers()?;
    let outcome = Outcome {
        ends,
        pids: job.pids(),
        time: ranks_ended.unwrap_or_else(|| struck.elapsed()),
        losses: job.losses(),
        reference,
    };
    let messages = || {
        let tell = |end: &End| format!("\n  node {} ({}):\n{}", end.node, end.status, indented(&end.stderr));
        outcome.ends.iter().map(tell).collect::<String>()
    };
    judge::judge(fault, &outcome).with_context(|| format!("after {:.1?}{}", outcome.time, messages()))?;
    job.expect_nothing_left()?;
    Ok(outcome.time)
}

fn wait_until_ready(job: &Job, fault: &Fault) -> anyhow::Result<()> {
    let all_came = || (0..fault.layout.world_size).all(|rank| job.has_noted(&format!("rank-{rank}")));
    let is_ready = || match fault.kind {
        Kind::Late(..) | Kind::Missing(_) => all_came() && job.has_noted("sleeping"),
        _ => all_came() && job.losses().lines().count() as u64 >= fault.after_step,
    };
    ensure!(
        wait_until(READY_LIMIT, is_ready),
        "the job does not get so far: {}",
        job.all_stderr()
    );
    Ok(())
}

fn strike(job: &Job, fault: &Fault) -> anyhow::Result<()> {
    let pids = job.pids();
    let rank_pid = |rank: usize| pids.get(&rank).copied().context("the rank has come");
    let pause = |pid: u32, time: Duration| {
        send(pid, libc::SIGSTOP);
        sleep(time);
        send(pid, libc::SIGCONT);
    };
    match fault.kind {
        Kind::KillRank(rank) => send(rank_pid(rank)?, libc::SIGKILL),
        Kind::KillLauncher(node) => send(job.launcher(node), libc::SIGKILL),
        Kind::StopRank(rank) => send(rank_pid(rank)?, libc::SIGSTOP),
        Kind::StopLauncher => send(job.launcher(0), libc::SIGSTOP),
        Kind::PauseRank(rank, time) => pause(rank_pid(rank)?, time),
        Kind::PauseLauncher(node, time) => pause(job.launcher(node), time),
        Kind::Cut => job.cable()?.cut()?,
        Kind::Blip(time) => {
            job.cable()?.cut()?;
            sleep(time);
            job.cable()?.mend()?;
        }
        Kind::Garbage(garbage) => bother(job, fault.layout, garbage)?,
        // The rank does it itself.
        Kind::Late(..) | Kind::Missing(_) => {}
        Kind::AskLauncher(node, signal) => send(job.launcher(node), signal),
        Kind::AskRank(rank) => send(rank_pid(rank)?, libc::SIGTERM),
    }
    Ok(())
}

/// Strangers on every node, until they have gone.
fn bother(job: &Job, layout: Layout, garbage: u64) -> anyhow::Result<()> {
    let target = format!("{} {garbage}", job.marker());
    let start = |node: usize| -> anyhow::Result<Process> {
        let mut stranger: Command = job.command(node)?;
        Ok(Process::start(stranger.env(TARGET, &target))?)
    };
    let mut strangers = (0..layout.nodes()).map(start).collect::<anyhow::Result<Vec<_>>>()?;
    for stranger in &mut strangers {
        let status = stranger.wait_within(END_LIMIT)?;
        ensure!(
            status.is_some_and(|status| status.success()),
            "a stranger fails: {}",
            job.all_stderr()
        );
    }
    Ok(())
}
