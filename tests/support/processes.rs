//! Other processes: started so that none outlives its test, found by a marker in their environment, waited for, and
//! signalled.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::ensure;

/// How often is looked at what is waited for.
const GLANCE: Duration = Duration::from_millis(3);
/// Set, to a text of its own, in the environment of a [`Marked`] group.
pub const MARKER: &str = "BURN_MEGATRON_TEST_MARKER";

/// A process that a test has started. Killed and reaped when it is dropped, and killed when the thread that started it
/// is gone; a launcher's ranks die with it.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    pub fn start(command: &mut Command) -> io::Result<Self> {
        // SAFETY: between fork and exec, one system call that touches no memory of this process.
        unsafe { command.pre_exec(die_with_parent) };
        Ok(Self(command.spawn()?))
    }

    pub fn id(&self) -> u32 {
        self.0.id()
    }

    pub fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }

    /// Waits for its end; returns `None` if it does not come within the limit.
    pub fn wait_within(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        let begun = Instant::now();
        loop {
            match self.0.try_wait()? {
                None if begun.elapsed() <= limit => sleep(GLANCE),
                status => return Ok(status),
            }
        }
    }

    /// Kills and reaps it.
    pub fn kill(&mut self) -> io::Result<()> {
        self.0.kill()?;
        self.0.wait().map(drop)
    }

    /// The ends of the pipes that its outputs are written to, where there are any; once.
    pub fn take_outputs(&mut self) -> (Option<ChildStdout>, Option<ChildStderr>) {
        (self.0.stdout.take(), self.0.stderr.take())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.kill();
    }
}

/// Asks the kernel to kill a process when the thread that started it is gone. Called between fork and exec.
fn die_with_parent() -> io::Result<()> {
    // SAFETY: prctl with PR_SET_PDEATHSIG takes a signal number and touches no memory of this process.
    match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Launchers and all that they start, which have a marker in their environment; killed when the group is dropped.
#[derive(Debug)]
pub struct Marked {
    marker: String,
    pub launchers: Vec<Process>,
}

impl Marked {
    /// A group without processes; no other may have the same marker.
    pub fn new(marker: impl ToString) -> Self {
        Self {
            marker: marker.to_string(),
            launchers: Vec::new(),
        }
    }

    pub fn marker(&self) -> &str {
        &self.marker
    }

    pub fn start(&mut self, launcher: &mut Command) -> io::Result<()> {
        let launcher = launcher.env(MARKER, &self.marker);
        self.launchers.push(Process::start(launcher)?);
        Ok(())
    }

    /// The launchers, and all that they have started.
    pub fn processes(&self) -> Vec<u32> {
        marked_with(&self.marker)
    }

    /// Fails unless all of them end within the limit.
    pub fn expect_end_within(&self, limit: Duration) -> anyhow::Result<()> {
        let are_gone = wait_until(limit, || self.processes().is_empty());
        ensure!(are_gone, "processes are left: {:?}", self.processes());
        Ok(())
    }
}

impl Drop for Marked {
    fn drop(&mut self) {
        self.launchers.clear();
        for pid in self.processes() {
            send(pid, libc::SIGKILL);
        }
    }
}

/// The processes that any thread of a process has started.
pub fn children_of(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let pids = children.flat_map(|text| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    pids.filter_map(|pid| pid.parse().ok()).collect()
}

/// The processes that have this marker; none that has ended and waits to be reaped.
pub fn marked_with(marker: &str) -> Vec<u32> {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| variable_of(*pid, MARKER).is_some_and(|found| found == marker))
        .collect()
}

/// A variable of a process's environment, if the process has it and a thread that runs: the first may have ended before
/// one that is still writing.
pub fn variable_of(pid: u32, variable: &str) -> Option<String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let mut environments = threads.filter_map(|thread| fs::read(thread.path().join("environ")).ok());
    // All threads have the same; one that has ended has none.
    let environment = environments.find(|environment| !environment.is_empty())?;
    let mut entries = environment.split(|byte| *byte == 0);
    let found = entries.find_map(|entry| entry.strip_prefix(variable.as_bytes())?.strip_prefix(b"="))?;
    Some(String::from_utf8_lossy(found).into_owned())
}

/// Whether a process has a thread that runs. A process that has not been reaped does not count; one whose first thread
/// has ended holds its locks until the last has.
pub fn is_alive(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    // A thread that ends meanwhile has no state.
    let states = threads.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
    states
        .filter_map(|stat| state(&stat))
        .any(|state| !matches!(state, 'Z' | 'X'))
}

/// The state follows the program's name, which stands in parentheses.
fn state(stat: &str) -> Option<char> {
    stat.rsplit(')').next()?.trim_start().chars().next()
}

/// Gives a command one thread to compute with, no input, and nothing of a job that this process may be part of.
pub fn isolate(command: &mut Command) -> &mut Command {
    command
        .env("RAYON_NUM_THREADS", "1")
        .env("RUST_BACKTRACE", "0")
        .env_remove("RANK")
        .env_remove("MASTER_ADDR")
        .env_remove("MASTER_PORT")
        .stdin(Stdio::null())
}

/// Waits until a claim holds; false when it does not within the limit.
pub fn wait_until(limit: Duration, mut claim: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !claim() {
        if begun.elapsed() > limit {
            return false;
        }
        sleep(GLANCE);
    }
    true
}

pub fn send(pid: u32, signal: i32) {
    // SAFETY: kill takes two numbers and touches no memory of this process.
    unsafe { libc::kill(pid as libc::pid_t, signal) };
}
