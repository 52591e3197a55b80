//! Ranks that come together and end well, and what keeps them from it.

use std::net::TcpListener;

use libtest_mimic::Failed;

use tests::job::{Job, expect};

pub fn all_ranks_succeed() -> Result<(), Failed> {
    let ended = Job::start("launcher", "success")?.end()?;
    ended.expect_code(0)?;
    let mut lines: Vec<_> = ended.stdout.lines().collect();
    lines.sort_unstable();
    let expected = [0, 1, 2].map(|rank| format!("[rank {rank}] hello from {rank} of 3, given"));
    expect(lines == expected, &ended.stdout)?;
    expect(ended.stderr.is_empty(), &ended.stderr)
}

pub fn sixteen_ranks_meet() -> Result<(), Failed> {
    let ended = Job::start("launcher", "crowd")?.end()?;
    ended.expect_code(0)?;
    expect(ended.stdout.lines().count() == 16, &ended.stdout)
}

/// 32 threads that never sleep, on however few cores: the heartbeats get through all the same.
pub fn eight_busy_ranks_are_not_taken_for_silent() -> Result<(), Failed> {
    let ended = Job::start("launcher", "busy")?.end()?;
    ended.expect_code(0)?;
    expect(ended.stderr.is_empty(), &ended.stderr)
}

pub fn late_rank_is_waited_for() -> Result<(), Failed> {
    Job::start("launcher", "late_rank")?.end()?.expect_code(0)
}

pub fn lines_stay_whole_and_rank_zero_can_be_plain() -> Result<(), Failed> {
    let ended = Job::start("launcher", "two_writers")?.end()?;
    ended.expect_code(0)?;
    for (rank, prefix) in [(0, ""), (1, "[rank 1] ")] {
        let end = format!("rank {rank}");
        let lines: Vec<_> = ended.stdout.lines().filter(|line| line.ends_with(&end)).collect();
        let expected: Vec<_> = (0..2000)
            .map(|line| format!("{prefix}line {line} of rank {rank}"))
            .collect();
        expect(lines == expected, &format!("rank {rank}: {} lines", lines.len()))?;
    }
    Ok(())
}

pub fn taken_port_is_an_error() -> Result<(), Failed> {
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let port = taken.local_addr()?.port().to_string();
    let ended = Job::start_with("launcher", "success", &[("MASTER_PORT", &port)])?.end()?;
    ended.expect_code(99)?;
    ended.expect_line(&format!(
        "the rendezvous store cannot listen on 127.0.0.1:{port}: the port is taken"
    ))
}
