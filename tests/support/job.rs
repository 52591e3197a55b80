//! [`Job`]: a launcher with its ranks, as a test sees it.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use burn_megatron::launch::{Launcher, RankSet};
use libtest_mimic::Failed;
use tempfile::TempDir;

use crate::processes::{Process, is_alive, wait_until};

/// The room and the case of a process that a test has started.
pub const CASE: &str = "JOB_TEST_CASE";
pub const FOLDER: &str = "JOB_TEST_FOLDER";
/// Longer than what is waited for takes on a busy machine.
const LONG: Duration = Duration::from_secs(120);

/// Returns the room and the case that this process has been started for, if it is a launcher or a rank of one.
pub fn case() -> Option<(String, String)> {
    let text = std::env::var(CASE).ok()?;
    let (room, case) = text.split_once(' ')?;
    Some((room.to_owned(), case.to_owned()))
}

/// The test's folder, for the processes that it has started.
pub fn folder() -> PathBuf {
    PathBuf::from(std::env::var_os(FOLDER).expect("the test sets its folder"))
}

/// Leaves a file in the test's folder, whole from the moment it exists: what a rank has to say to the test.
pub fn note(name: &str, content: impl ToString) {
    let folder = folder();
    let draft = folder.join(format!("{name}.draft"));
    fs::write(&draft, content.to_string()).expect("the test's folder is writable");
    fs::rename(draft, folder.join(name)).expect("the test's folder is writable");
}

/// Runs a launcher, and ends this process with its exit code.
pub fn launch(launcher: Launcher) -> ! {
    match launcher.run() {
        Ok(summary) => std::process::exit(summary.exit_code()),
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(99);
        }
    }
}

/// The ranks before a line that a launcher has printed; none before its own.
pub fn ranks_of(line: &str) -> RankSet {
    let place = line.strip_prefix("[rank").and_then(|line| line.split_once(']'));
    let ranks = place.and_then(|(place, _)| place.trim_start_matches('s').split(" on host ").next());
    ranks.and_then(|ranks| ranks.parse().ok()).unwrap_or_default()
}

/// The ranks of the lines of which `is_said` is true.
pub fn ranks_that_said(printed: &str, is_said: impl Fn(&str) -> bool) -> RankSet {
    let lines = printed.lines().filter(|line| is_said(line));
    lines
        .flat_map(|line| ranks_of(line).iter().collect::<Vec<_>>())
        .collect()
}

/// The lines that rank 0 has printed, alone or with others, without the ranks before them; those of a program without a
/// launcher, which has no ranks, as they are.
pub fn lines_of_rank_zero(printed: &str) -> impl Iterator<Item = &str> {
    printed.lines().filter_map(|line| match line.strip_prefix("[rank") {
        Some(rest) => rest
            .split_once("] ")
            .filter(|_| ranks_of(line).contains(0))
            .map(|(_, text)| text),
        None => Some(line),
    })
}

/// A launcher that runs, with its ranks.
pub struct Job {
    pub folder: TempDir,
    pub launcher: Process,
}

/// A launcher that has ended.
pub struct Ended {
    folder: TempDir,
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Job {
    /// Starts this program as the launcher of a case that a room plays.
    pub fn start(room: &str, case: &str) -> io::Result<Job> {
        Job::start_with(room, case, &[])
    }

    pub fn start_with(room: &str, case: &str, environment: &[(&str, &str)]) -> io::Result<Job> {
        let folder = TempDir::new()?;
        let mut command = Command::new(std::env::current_exe()?);
        command
            .env_remove("MASTER_ADDR")
            .env_remove("MASTER_PORT")
            .env_remove("RUST_BACKTRACE")
            .envs(environment.iter().copied())
            .env(CASE, format!("{room} {case}"))
            .env(FOLDER, folder.path())
            .stdout(File::create(folder.path().join("stdout"))?)
            .stderr(File::create(folder.path().join("stderr"))?);
        let launcher = Process::start(&mut command)?;
        Ok(Job { folder, launcher })
    }

    /// Waits until each rank has said that it is ready; returns what they said.
    pub fn wait_until_ready(&self, ranks: usize) -> Result<Vec<String>, Failed> {
        self.wait_until_ranks_are_ready(0..ranks)
    }

    pub fn wait_until_ranks_are_ready(&self, ranks: Range<usize>) -> Result<Vec<String>, Failed> {
        let file = |rank: usize| self.folder.path().join(format!("ready-{rank}"));
        expect(
            wait_until(LONG, || ranks.clone().all(|rank| file(rank).exists())),
            "the ranks are not ready",
        )?;
        Ok(ranks
            .map(|rank| fs::read_to_string(file(rank)))
            .collect::<Result<_, _>>()?)
    }

    pub fn pid(&self, name: &str) -> Result<u32, Failed> {
        Ok(fs::read_to_string(self.folder.path().join(name))?.parse()?)
    }

    /// Waits for the launcher, and checks that no process is left.
    pub fn end(mut self) -> Result<Ended, Failed> {
        let status = self.launcher.wait_within(LONG)?.ok_or("the launcher does not end")?;
        for file in fs::read_dir(self.folder.path())? {
            let name = file?.file_name().to_string_lossy().into_owned();
            if name.starts_with("pid-") {
                // A grandchild got SIGKILL; what it had begun to write goes to the disk before it ends.
                let pid = self.pid(&name)?;
                expect(
                    wait_until(Duration::from_secs(10), || !is_alive(pid)),
                    &format!("{name} is left running"),
                )?;
            }
        }
        let read = |name: &str| fs::read_to_string(self.folder.path().join(name));
        let (stdout, stderr) = (read("stdout")?, read("stderr")?);
        Ok(Ended {
            folder: self.folder,
            status,
            stdout,
            stderr,
        })
    }
}

impl Ended {
    pub fn expect_code(&self, code: i32) -> Result<(), Failed> {
        expect(
            self.status.code() == Some(code),
            &format!("{} instead of {code}\n{}", self.status, self.stderr),
        )
    }

    /// The first line of stderr that contains `text`.
    pub fn line(&self, text: &str) -> Result<&str, Failed> {
        let line = self.stderr.lines().find(|line| line.contains(text));
        line.ok_or_else(|| format!("no line contains {text:?}:\n{}", self.stderr).into())
    }

    /// A line that begins with this rank and its host, or with several ranks that have written it.
    pub fn line_of(&self, rank: usize) -> Result<&str, Failed> {
        let is_of = |line: &&str| line.contains(" on host ") && ranks_of(line).contains(rank);
        let line = self.stderr.lines().find(is_of);
        line.ok_or_else(|| format!("no line is rank {rank}'s:\n{}", self.stderr).into())
    }

    pub fn expect_line(&self, text: &str) -> Result<(), Failed> {
        self.line(text).map(drop)
    }

    pub fn pid(&self, rank: usize) -> Result<u32, Failed> {
        Ok(fs::read_to_string(self.folder.path().join(format!("pid-{rank}")))?.parse()?)
    }
}

pub fn expect(claim: bool, otherwise: &str) -> Result<(), Failed> {
    if claim { Ok(()) } else { Err(otherwise.into()) }
}

/// Checks that at most this number of seconds has passed.
pub fn expect_within(seconds: u64, start: Instant) -> Result<(), Failed> {
    let time = start.elapsed();
    expect(time < Duration::from_secs(seconds), &format!("took {time:?}"))
}
