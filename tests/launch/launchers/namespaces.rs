//! Two nodes that are network namespaces joined by a cable (a veth pair): training parity with one rank, the cable cut
//! in mid-run, and packets that vanish for a while. Needs root and iproute2; counts as ignored, and says so, where it
//! cannot make namespaces.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use libtest_mimic::{Failed, Trial};
use tempfile::TempDir;
use tests::processes::send;

use tests::cable::{ADDRESSES, Cable};
use tests::program::{FOUR_RANKS, Started, end, expect_same, flags, losses, losses_of_one_rank, pretrain_gpt, start};
use tests::trials::trial_unless;

const STEPS: usize = 3;
/// More than are made before the cable is cut.
const ENDLESS: usize = 1_000_000;
const LIMIT: Duration = Duration::from_secs(120);
/// The ranks' longest wait for each other.
const SHORT_TIMEOUT: [&str; 2] = ["--distributed-timeout-minutes", "0.1"];
/// That timeout, what the launcher gives the ranks to end, and room for two busy cores.
const CUT_LIMIT: Duration = Duration::from_secs(6 + 5 + 10);

pub fn trials() -> Vec<Trial> {
    let lacks = Cable::plug("try").err().map(|problem| format!("{problem:#}"));
    let trial = |name: &str, test: fn() -> Result<(), Failed>| trial_unless(lacks.clone(), name, test);
    vec![
        trial("two_namespaces_train_as_one_rank", two_namespaces_train_as_one_rank),
        trial(
            "node_zero_whose_name_is_loopback_to_itself_trains_with_the_other",
            node_zero_whose_name_is_loopback_to_itself_trains_with_the_other,
        ),
        trial("cut_cable_ends_both_sides_in_time", cut_cable_ends_both_sides_in_time),
        trial(
            "job_survives_packets_that_vanish_for_less_than_the_limit",
            job_survives_packets_that_vanish_for_less_than_the_limit,
        ),
        // A minute and more, with the limits that a job has by itself: run by hand, with `--ignored`.
        Trial::test(
            "job_survives_packets_that_vanish_for_less_than_the_default_limit",
            || survives_silence("long", Duration::from_secs(30), Duration::from_millis(26_500)),
        )
        .with_ignored_flag(true),
    ]
}

fn two_namespaces_train_as_one_rank() -> Result<(), Failed> {
    let cable = Cable::plug("train")?;
    let folder = TempDir::new()?;
    let log = folder.path().join("four.jsonl");
    let log_flags = ["--log-jsonl", log.to_str().context("a temporary path is text")?];
    let one = start_node(&cable, 1, STEPS, &SHORT_TIMEOUT)?;
    let zero = start_node(&cable, 0, STEPS, &[&SHORT_TIMEOUT[..], &log_flags].concat())?;
    end(zero, LIMIT)?.expect_code(0)?;
    end(one, LIMIT)?.expect_code(0)?;
    Ok(expect_same(&losses(&log)?, &losses_of_one_rank(STEPS)?)?)
}

/// As Debian names a host in its /etc/hosts.
fn node_zero_whose_name_is_loopback_to_itself_trains_with_the_other() -> Result<(), Failed> {
    let cable = Cable::plug("name")?;
    cable.name(0, "node-zero", "127.0.1.1")?;
    cable.name(1, "node-zero", ADDRESSES[0])?;
    let name_flags = ["--master-addr", "node-zero"];
    for more in [&[][..], &["--interface", "cable"]] {
        let flags = [&SHORT_TIMEOUT[..], &name_flags, more].concat();
        let one = start_node(&cable, 1, STEPS, &flags)?;
        let zero = start_node(&cable, 0, STEPS, &flags)?;
        end(zero, LIMIT)?.expect_code(0)?;
        end(one, LIMIT)?.expect_code(0)?;
    }
    Ok(())
}

fn cut_cable_ends_both_sides_in_time() -> Result<(), Failed> {
    let cable = Cable::plug("cut")?;
    let folder = TempDir::new()?;
    let log = folder.path().join("four.jsonl");
    let log_flags = ["--log-jsonl", log.to_str().context("a temporary path is text")?];
    let one = start_node(&cable, 1, ENDLESS, &SHORT_TIMEOUT)?;
    let zero = start_node(&cable, 0, ENDLESS, &[&SHORT_TIMEOUT[..], &log_flags].concat())?;
    let begun = Instant::now();
    wait_for_steps(&log, 3)?;
    cable.cut()?;
    let cut = begun.elapsed().as_secs_f64();
    let zero = end(zero, LIMIT)?;
    let one = end(one, LIMIT)?;
    for ended in [&zero, &one] {
        let seconds = ended.seconds - cut;
        if seconds > CUT_LIMIT.as_secs_f64() || ended.code == Some(0) {
            return Err(format!("{seconds} s after the cut, {:?}:\n{}", ended.code, ended.stderr).into());
        }
    }
    // Each launcher names the other node first, its own ranks after that.
    let silent = zero.expect_line("(another node) failed first: silent: no heartbeat for ")?;
    let lost = one.expect_line("(another node) failed first: out of reach: lost contact with host 10.213.77.1 ")?;
    for (line, host) in [
        (silent, " on host node1 "),
        (lost, "[launcher] rank 0 on host 10.213.77.1 "),
    ] {
        if !line.contains("[launcher] rank ") || !line.contains(host) || !line.contains("; here rank") {
            return Err(format!("node 0:\n{}\nnode 1:\n{}", zero.stderr, one.stderr).into());
        }
    }
    Ok(())
}

/// A retransmission comes 6.2 to 7.2 s after the packets began to vanish, the next 12.6 s: beyond the limit.
fn job_survives_packets_that_vanish_for_less_than_the_limit() -> Result<(), Failed> {
    survives_silence("short", Duration::from_secs(10), Duration::from_millis(8000))
}

/// Drops packets of a cable for `silence` in a job with this heartbeat limit: the steps continue afterwards.
fn survives_silence(cable: &str, heartbeat_limit: Duration, silence: Duration) -> Result<(), Failed> {
    let cable = Cable::plug(cable)?;
    let folder = TempDir::new()?;
    let log = folder.path().join("four.jsonl");
    let log_flags = ["--log-jsonl", log.to_str().context("a temporary path is text")?];
    let limit_flags = ["--heartbeat-limit-secs", &heartbeat_limit.as_secs().to_string()];
    let one = start_node(&cable, 1, ENDLESS, &limit_flags)?;
    let zero = start_node(&cable, 0, ENDLESS, &[&limit_flags[..], &log_flags].concat())?;
    wait_for_steps(&log, 3)?;
    cable.swallow()?;
    sleep(silence);
    let before = losses(&log)?.len();
    cable.deliver()?;
    let went_on = wait_for_steps(&log, before + 3);
    // To the launcher: `ip` has become it.
    send(zero.process.id(), libc::SIGTERM);
    let (zero, one) = (end(zero, LIMIT)?, end(one, LIMIT)?);
    if let Err(error) = went_on {
        return Err(format!("{error}; node 0:\n{}\nnode 1:\n{}", zero.stderr, one.stderr).into());
    }
    zero.expect_code(143)?;
    Ok(one.expect_code(143)?)
}

/// Waits until `steps` steps are made.
fn wait_for_steps(log: &Path, steps: usize) -> anyhow::Result<()> {
    let begun = Instant::now();
    while losses(log).map_or(0, |losses| losses.len()) < steps {
        ensure!(begun.elapsed() < LIMIT / 2, "{steps} steps are not made");
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Starts two of four ranks in a namespace.
fn start_node(cable: &Cable, node: usize, steps: usize, more: &[&str]) -> anyhow::Result<Started> {
    let mut command = cable.command(node, pretrain_gpt()?);
    command.args(flags(steps)).args(FOUR_RANKS);
    command.args(["--nnodes", "2", "--node-rank", &node.to_string()]);
    if !more.contains(&"--master-addr") {
        command.args(["--master-addr", ADDRESSES[0]]);
    }
    command.args(more);
    command.env("BURN_MEGATRON_HOST", format!("node{node}/boot"));
    command.env("BURN_MEGATRON_JOB_TOKEN", "a secret of enough bytes");
    start(&mut command)
}
