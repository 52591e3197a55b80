//! Ranks that die, fail, do not come or do not end: the first is named, and nothing is left.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use burn_megatron::launch::SECONDARY_FAILURE_EXIT_CODE;
use libtest_mimic::Failed;
use tempfile::TempDir;
use tests::job::ranks_that_said;
use tests::processes::{Process, is_alive, send, wait_until};

use crate::launch::launcher::LONG;
use tests::job::{CASE, FOLDER, Job, expect, expect_within};

pub fn exit_code_of_the_first_failure_is_kept() -> Result<(), Failed> {
    let ended = Job::start("launcher", "exit_three")?.end()?;
    ended.expect_code(3)?;
    ended.expect_line(&format!(
        "[launcher] rank 1 (pid {}) failed first: exit code 3; then ranks 0, 2: ",
        ended.pid(1)?
    ))?;
    ended.expect_line("exit code 75 (because another rank failed)")
}

pub fn own_error_is_reported_everywhere_and_printed_once() -> Result<(), Failed> {
    let ended = Job::start("launcher", "own_error")?.end()?;
    ended.expect_code(1)?;
    ended.expect_line("failed first: exit code 1 (its message is above); then ranks 0, 2: ")?;
    // One line, unless a busy machine holds one of the two up.
    let is_secondary = |line: &str| line.contains("ends because rank 1 on host ") && line.ends_with(" failed");
    expect(
        ranks_that_said(&ended.stderr, is_secondary) == [0, 2].into_iter().collect(),
        &ended.stderr,
    )?;
    let printed = ended.stderr.lines().filter(|line| line.contains("loss is not finite"));
    let printed: Vec<&str> = printed.collect();
    expect(
        printed.len() == 1 && printed[0].starts_with("[rank 1 on host "),
        &ended.stderr,
    )
}

pub fn error_of_a_rank_that_is_not_logged_is_printed() -> Result<(), Failed> {
    let ended = Job::start("launcher", "unlogged_error")?.end()?;
    ended.expect_code(1)?;
    ended.expect_line("failed first: exit code 1 (its message is above); then ranks 0, 2: ")?;
    let lines: Vec<&str> = ended.stderr.lines().filter(|line| line.starts_with("[rank")).collect();
    expect(
        lines.len() == 2
            && lines[0].starts_with("[rank 0 on host ")
            && lines[1].starts_with("[rank 1 on host ")
            && lines[1].ends_with("failed: loss is not finite"),
        &ended.stderr,
    )
}

pub fn panic_is_reported_everywhere() -> Result<(), Failed> {
    let ended = Job::start("launcher", "panic")?.end()?;
    ended.expect_code(101)?;
    let printed = ended.stderr.lines().filter(|line| line.contains("panicked: "));
    let printed: Vec<&str> = printed.collect();
    expect(
        printed.len() == 1 && printed[0].starts_with("[rank 1 on host "),
        &ended.stderr,
    )?;
    ended.expect_line("failed first: exit code 101 (its message is above); then ranks 0, 2: ")
}

pub fn killed_rank_is_named_and_nothing_is_left() -> Result<(), Failed> {
    let job = Job::start("launcher", "killed")?;
    let shared_memory = job.wait_until_ready(3)?;
    let pid = job.pid("pid-2")?;
    let start = Instant::now();
    send(pid, libc::SIGKILL);
    let ended = job.end()?;
    expect_within(10, start)?;
    ended.expect_code(137)?;
    ended.expect_line(&format!(
        "[launcher] rank 2 (pid {pid}) failed first: killed by signal 9 (SIGKILL); then "
    ))?;
    ended.expect_line("ends because rank 2 on host ")?;
    expect(
        shared_memory.iter().all(|path| !Path::new(path).exists()),
        "files are left in /dev/shm",
    )
}

pub fn ranks_die_with_their_launcher() -> Result<(), Failed> {
    let mut job = Job::start("launcher", "launcher_killed")?;
    let shared_memory = job.wait_until_ready(3)?;
    let ranks: Vec<_> = (0..3)
        .map(|rank| job.pid(&format!("pid-{rank}")))
        .collect::<Result<_, _>>()?;
    job.launcher.kill()?;
    let all_gone = wait_until(Duration::from_secs(5), || !ranks.iter().any(|&pid| is_alive(pid)));
    // No process is left to clean up the ranks' own children and shared memory.
    for rank in 0..3 {
        send(job.pid(&format!("pid-sleep-{rank}"))?, libc::SIGKILL);
    }
    for path in shared_memory {
        let _ = fs::remove_file(path);
    }
    expect(all_gone, "ranks outlive their launcher")
}

pub fn rank_that_never_joins_is_named() -> Result<(), Failed> {
    let ended = Job::start("launcher", "never_joins")?.end()?;
    ended.expect_line("timed out after 500ms: waiting for rank 1 of 2")
}

pub fn rank_that_ends_without_joining_is_named() -> Result<(), Failed> {
    let ended = Job::start("launcher", "ends_without_joining")?.end()?;
    ended.expect_code(SECONDARY_FAILURE_EXIT_CODE)?;
    ended.expect_line("(reported before: rank 1 on host localhost failed: ended without joining the job: exit code 0)")
}

pub fn rank_that_does_not_end_is_killed() -> Result<(), Failed> {
    let start = Instant::now();
    let ended = Job::start("launcher", "stubborn_rank")?.end()?;
    ended.expect_code(4)?;
    expect_within(10, start)?;
    ended.expect_line("failed first: exit code 4; then rank 0: killed by signal 9 (SIGKILL) by the launcher")
}

/// As under torchrun: only rank 0 hosts the store.
pub fn hosting_rank_that_is_killed_is_named() -> Result<(), Failed> {
    let folder = TempDir::new()?;
    let store_port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let start = |rank: usize| {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .env(CASE, "launcher hosting_rank_killed")
            .env(FOLDER, folder.path());
        for (name, value) in [
            ("WORLD_SIZE", 3),
            ("LOCAL_WORLD_SIZE", 3),
            ("RANK", rank),
            ("LOCAL_RANK", rank),
        ] {
            command.env(name, value.to_string());
        }
        command.env("MASTER_ADDR", "localhost").env("MASTER_PORT", "1");
        command.env("BURN_MEGATRON_STORE_PORT", store_port.to_string());
        command.stderr(File::create(folder.path().join(format!("stderr-{rank}")))?);
        Process::start(&mut command)
    };
    let mut ranks = [start(0)?, start(1)?, start(2)?];
    let ready = |rank: usize| folder.path().join(format!("ready-{rank}")).exists();
    expect(wait_until(LONG, || (0..3).all(ready)), "the ranks are not ready")?;
    ranks[0].kill()?;
    // The job has no secret: rank 0 alone warns of who may connect, once.
    for rank in 0..3 {
        let stderr = fs::read_to_string(folder.path().join(format!("stderr-{rank}")))?;
        let warnings = stderr.matches("set BURN_MEGATRON_JOB_TOKEN to a secret").count();
        expect(warnings == usize::from(rank == 0), &stderr)?;
    }
    for rank in [1, 2] {
        let code = ranks[rank].wait_within(LONG)?.and_then(|status| status.code());
        let stderr = fs::read_to_string(folder.path().join(format!("stderr-{rank}")))?;
        expect(
            code == Some(SECONDARY_FAILURE_EXIT_CODE),
            &format!("{code:?}: {stderr}"),
        )?;
        let cause = format!("failed: lost the store at localhost:{store_port}, which rank 0 hosts (killed?)");
        expect(
            stderr.contains("ends because rank 0 on host ") && stderr.contains(&cause),
            &stderr,
        )?;
    }
    Ok(())
}
