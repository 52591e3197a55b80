//! Jobs on two nodes: two launchers with host names of their own.

use std::net::TcpListener;
use std::path::Path;
use std::time::Instant;

use burn_megatron::launch::SECONDARY_FAILURE_EXIT_CODE;
use libtest_mimic::Failed;
use tests::processes::{send, wait_until};

use crate::launch::launcher::{LONG, NODE, NODE_ZERO};
use tests::job::{Job, expect, expect_within};

pub fn ranks_of_two_nodes_meet() -> Result<(), Failed> {
    for (node, job) in start_two_nodes("success")?.into_iter().enumerate() {
        let ended = job.end()?;
        ended.expect_code(0)?;
        let mut lines: Vec<_> = ended.stdout.lines().collect();
        lines.sort_unstable();
        let expected = [2 * node, 2 * node + 1].map(|rank| format!("[rank {rank}] hello from {rank} of 4, given"));
        expect(lines == expected, &ended.stdout)?;
        expect(ended.stderr.is_empty(), &ended.stderr)?;
    }
    Ok(())
}

pub fn killed_rank_is_named_on_both_nodes() -> Result<(), Failed> {
    let [zero, one] = start_two_nodes("killed")?;
    zero.wait_until_ranks_are_ready(0..2)?;
    let shared_memory = one.wait_until_ranks_are_ready(2..4)?;
    let pid = one.pid("pid-3")?;
    let start = Instant::now();
    send(pid, libc::SIGKILL);
    let (zero, one) = (zero.end()?, one.end()?);
    expect_within(10, start)?;
    one.expect_code(137)?;
    one.expect_line(&format!(
        "[launcher] rank 3 (pid {pid}) failed first: killed by signal 9 (SIGKILL); then rank 2: exit code 75"
    ))?;
    zero.expect_code(SECONDARY_FAILURE_EXIT_CODE)?;
    let line = zero.line("[launcher] rank 3 on host node1 (another node) failed first: ")?;
    expect(line.contains("; here rank") && line.contains("exit code 75"), line)?;
    expect(
        shared_memory.iter().all(|path| !Path::new(path).exists()),
        "files are left in /dev/shm",
    )
}

pub fn killed_rank_of_node_zero_is_named_on_both_nodes() -> Result<(), Failed> {
    let [zero, one] = start_two_nodes("killed")?;
    zero.wait_until_ranks_are_ready(0..2)?;
    one.wait_until_ranks_are_ready(2..4)?;
    send(zero.pid("pid-0")?, libc::SIGKILL);
    let (zero, one) = (zero.end()?, one.end()?);
    zero.expect_code(137)?;
    one.expect_code(SECONDARY_FAILURE_EXIT_CODE)?;
    one.expect_line("[launcher] rank 0 on host node0 (another node) failed first: ")
}

pub fn killed_launcher_of_node_zero_is_named() -> Result<(), Failed> {
    let [mut zero, one] = start_two_nodes("waiting")?;
    zero.wait_until_ranks_are_ready(0..2)?;
    one.wait_until_ranks_are_ready(2..4)?;
    zero.launcher.kill()?;
    let one = one.end()?;
    one.expect_code(SECONDARY_FAILURE_EXIT_CODE)?;
    one.expect_line("(another node) failed first: lost the store at 127.0.0.2:")?;
    one.expect_line("ends because rank 0 on host node0 failed: lost the store at 127.0.0.2:")
}

pub fn launcher_killed_before_its_ranks_have_joined_is_named() -> Result<(), Failed> {
    let [zero, mut one] = start_two_nodes("late_elsewhere")?;
    let started = |job: &Job, rank: usize| job.folder.path().join(format!("pid-{rank}")).exists();
    let all_started = wait_until(LONG, || {
        (0..2).all(|rank| started(&zero, rank)) && (2..4).all(|rank| started(&one, rank))
    });
    expect(all_started, "the ranks are not started")?;
    let start = Instant::now();
    one.launcher.kill()?;
    let zero = zero.end()?;
    expect_within(10, start)?;
    zero.expect_code(SECONDARY_FAILURE_EXIT_CODE)?;
    zero.expect_line(
        "[launcher] rank 2 on host node1 (another node) failed first: ended without joining the job: the launcher of \
         node 1 on host node1, which starts ranks 2 to 3, is dead",
    )
}

pub fn rank_that_cannot_be_started_is_named_on_the_other_node() -> Result<(), Failed> {
    let [zero, one] = start_two_nodes("cannot_start_elsewhere")?;
    let start = Instant::now();
    let (zero, one) = (zero.end()?, one.end()?);
    expect_within(10, start)?;
    one.expect_code(99)?;
    one.expect_line("Argument list too long")?;
    zero.expect_code(SECONDARY_FAILURE_EXIT_CODE)?;
    zero.expect_line("[launcher] rank 2 on host node1 (another node) failed first: could not be started: Argument list")
}

pub fn rank_that_ends_without_joining_is_named_on_its_node() -> Result<(), Failed> {
    let [zero, one] = start_two_nodes("ends_without_joining_elsewhere")?;
    let (zero, one) = (zero.end()?, one.end()?);
    zero.expect_code(SECONDARY_FAILURE_EXIT_CODE)?;
    zero.expect_line("rank 3 on host node1 (another node) failed first: ended without joining the job: exit code 0")?;
    one.expect_code(SECONDARY_FAILURE_EXIT_CODE)
}

pub fn nodes_that_do_not_fit_are_refused() -> Result<(), Failed> {
    let refused = |node: &str, token: &str, expected: &str| -> Result<(), Failed> {
        let ended = Job::start_with(
            "launcher",
            "success",
            &[(NODE, node), ("BURN_MEGATRON_JOB_TOKEN", token)],
        )?
        .end()?;
        ended.expect_code(99)?;
        ended.expect_line(expected)
    };
    let token = "a secret of enough bytes";
    refused(
        "2 2 1",
        token,
        "node rank=2: must be below the number of nodes, 2; valid: 0 to 1",
    )?;
    refused(
        "0 3 1",
        token,
        "world size=4: must be a multiple of the number of nodes, 3; nearest valid: 3 and 6",
    )?;
    refused(
        "0 2 1",
        "short",
        "BURN_MEGATRON_JOB_TOKEN=\"(5 bytes)\": must be a secret of at least 16 bytes",
    )?;
    let ended = Job::start_with("launcher", "success", &[(NODE, "0 2 1")])?.end()?;
    ended.expect_code(99)?;
    ended.expect_line("BURN_MEGATRON_JOB_TOKEN is not set, and the launchers of 2 nodes need a common secret")
}

/// Starts the launchers of two nodes, which are two hosts by name; node 1 first, so that it has to wait.
pub fn start_two_nodes(case: &str) -> Result<[Job; 2], Failed> {
    let port = TcpListener::bind((NODE_ZERO, 0))?.local_addr()?.port();
    let start = |node: usize| {
        Job::start_with(
            "launcher",
            case,
            &[
                (NODE, &format!("{node} 2 {port}")),
                ("BURN_MEGATRON_HOST", &format!("node{node}/boot")),
                ("BURN_MEGATRON_JOB_TOKEN", "a secret of enough bytes"),
            ],
        )
    };
    let one = start(1)?;
    Ok([start(0)?, one])
}
