//! Jobs whose ranks are started again when one has failed.

use std::thread::sleep;
use std::time::Duration;

use libtest_mimic::Failed;
use tests::processes::{send, wait_until};

use crate::launch::launcher::LONG;
use crate::launch::launcher::nodes::start_two_nodes;
use tests::job::{Job, expect};

pub fn failed_ranks_start_again() -> Result<(), Failed> {
    let ended = Job::start("launcher", "fails_twice")?.end()?;
    ended.expect_code(0)?;
    let printed = |text: &str| ended.stderr.matches(text).count();
    expect(printed(" failed first: exit code 3") == 2, &ended.stderr)?;
    ended.expect_line("[launcher] restart 1 of at most 5: all ranks start again")?;
    ended.expect_line("[launcher] restart 2 of at most 5: all ranks start again")?;
    expect(printed("[launcher] restart ") == 2, &ended.stderr)?;
    let ids: Vec<&str> = ended.stdout.lines().filter(|line| line.contains(" is job ")).collect();
    let (first, last) = (ids.first().ok_or("no rank names its job")?, ids[ids.len() - 1]);
    expect(
        first.contains("start 0 is job ") && last.contains("start 2 is job "),
        &ended.stdout,
    )?;
    expect(
        first.split(' ').next_back() != last.split(' ').next_back(),
        "each start has an id of its own",
    )
}

pub fn restarts_end_with_the_last_failure() -> Result<(), Failed> {
    let ended = Job::start("launcher", "fails_always")?.end()?;
    ended.expect_code(3)?;
    let printed = |text: &str| ended.stderr.matches(text).count();
    expect(printed(" failed first: exit code 3") == 2, &ended.stderr)?;
    expect(printed("[launcher] restart ") == 1, &ended.stderr)
}

pub fn a_signal_ends_a_job_that_is_about_to_restart() -> Result<(), Failed> {
    let job = Job::start("launcher", "fails_at_once")?;
    let stderr = job.folder.path().join("stderr");
    let restarts = || std::fs::read_to_string(&stderr).unwrap_or_default();
    expect(wait_until(LONG, || restarts().contains("restart 1 of")), "no restart")?;
    sleep(Duration::from_millis(100));
    send(job.launcher.id(), libc::SIGTERM);
    let ended = job.end()?;
    ended.expect_code(143)?;
    expect(ended.stderr.matches("[launcher] restart ").count() == 1, &ended.stderr)?;
    ended.expect_line("[launcher] interrupted by signal 15 (SIGTERM); all 3 ranks have ended")
}

/// Its ranks do not end in good order: to the other node that is a failure, but no reason to start again alone.
pub fn a_signal_to_one_of_two_nodes_ends_both() -> Result<(), Failed> {
    for interrupted in [0, 1] {
        let nodes = start_two_nodes("deaf")?;
        for (node, job) in nodes.iter().enumerate() {
            job.wait_until_ranks_are_ready(2 * node..2 * node + 2)?;
        }
        send(nodes[interrupted].launcher.id(), libc::SIGTERM);
        for (node, job) in nodes.into_iter().enumerate() {
            let ended = job.end()?;
            expect(!ended.stderr.contains("[launcher] restart"), &ended.stderr)?;
            if node == interrupted {
                ended.expect_code(143)?;
            } else {
                ended.expect_line("[launcher] no restart: a signal has ended another node")?;
            }
        }
    }
    Ok(())
}

pub fn both_nodes_start_again() -> Result<(), Failed> {
    let [zero, one] = start_two_nodes("fails_once")?;
    let (zero, one) = (zero.end()?, one.end()?);
    for ended in [&zero, &one] {
        ended.expect_code(0)?;
        ended.expect_line("[launcher] restart 1 of at most 1: all ranks start again")?;
    }
    one.expect_line(") failed first: exit code 3")?;
    zero.expect_line("[launcher] rank 3 on host node1 (another node) failed first: ")
}
