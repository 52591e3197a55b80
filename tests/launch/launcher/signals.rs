//! Launchers and ranks that are asked to end.

use std::thread::sleep;
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use tests::job::ranks_that_said;
use tests::processes::{is_alive, send};

use tests::job::{Job, expect, expect_within};

pub fn interrupt_ends_ranks_in_good_order() -> Result<(), Failed> {
    for (signal, code) in [(libc::SIGINT, 130), (libc::SIGTERM, 143)] {
        let job = Job::start("launcher", "interrupted")?;
        job.wait_until_ready(3)?;
        send(job.launcher.id(), signal);
        let ended = job.end()?;
        ended.expect_code(code)?;
        let ranks = ranks_that_said(&ended.stdout, |line| line.ends_with("] stopped in good order"));
        expect(ranks == (0..3).collect(), &ended.stdout)?;
        ended.expect_line("all 3 ranks have ended")?;
        expect(!ended.stderr.contains("failed"), &ended.stderr)?;
    }
    Ok(())
}

pub fn second_interrupt_kills() -> Result<(), Failed> {
    let job = Job::start("launcher", "deaf")?;
    job.wait_until_ready(2)?;
    let start = Instant::now();
    send(job.launcher.id(), libc::SIGINT);
    sleep(Duration::from_millis(300));
    send(job.launcher.id(), libc::SIGINT);
    let ended = job.end()?;
    ended.expect_code(130)?;
    expect_within(5, start)?;
    ended.expect_line("interrupted by signal 2 (SIGINT); all 2 ranks have ended, 2 of them killed")
}

pub fn later_signal_ends_a_rank_at_once() -> Result<(), Failed> {
    let job = Job::start("launcher", "deaf")?;
    job.wait_until_ready(2)?;
    let pid = job.pid("pid-1")?;
    send(pid, libc::SIGTERM);
    send(pid, libc::SIGTERM);
    sleep(Duration::from_millis(1100));
    expect(is_alive(pid), "the first signals only ask")?;
    send(pid, libc::SIGTERM);
    let ended = job.end()?;
    ended.expect_code(143)?;
    ended.expect_line(&format!("rank 1 (pid {pid}) failed first: exit code 143"))
}
