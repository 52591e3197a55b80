//! [`Children`]: the ranks' processes, from start to reaping.
//!
//! Each rank is the leader of a process group of its own, so the terminal's Ctrl-C reaches only the launcher, and what
//! a rank started itself can be ended with it. The kernel kills a rank when its launcher dies.
//!
//! A thread per rank waits for its end without reaping it; the launcher's loop reaps. So a process id that a signal is
//! sent to always still belongs to its rank.

use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};

use super::event::Event;
use super::output::{LastWords, OutputOptions, Outputs};
use super::summary::{RankEnd, RankOutcome};
use crate::launch::error::LaunchError;
use crate::launch::store::deadline_after;
use crate::launch::variables;

/// Time for killed ranks to end when the launcher gives up.
const REAP_LIMIT: Duration = Duration::from_secs(1);

/// The ranks' processes.
#[derive(Debug)]
pub(super) struct Children {
    ranks: Vec<RankProcess>,
    /// The ranks of this node.
    expected: Range<usize>,
    outputs: Outputs,
    events: mpsc::Sender<Event>,
}

#[derive(Debug)]
struct RankProcess {
    rank: usize,
    child: Child,
    /// The signal that the launcher sent last.
    signal_sent: Option<i32>,
    reaped: bool,
}

impl Children {
    /// Returns no processes yet, for these ranks; `events` hears of each end.
    ///
    /// # Errors
    /// There can be no more threads.
    pub(super) fn new(
        output: OutputOptions,
        expected: Range<usize>,
        events: mpsc::Sender<Event>,
    ) -> Result<Children, LaunchError> {
        let outputs = Outputs::start(output, expected.clone()).map_err(|source| LaunchError::System {
            action: "cannot start a thread for the ranks' output".into(),
            source,
        })?;
        Ok(Children {
            ranks: Vec::new(),
            expected,
            outputs,
            events,
        })
    }

    /// Starts the ranks of this node, in order. If one cannot be started, those before it are killed when `self` is
    /// dropped.
    pub(super) fn spawn_all(
        &mut self,
        world_size: usize,
        arguments: &[OsString],
        environment: &[(OsString, OsString)],
    ) -> Result<(), LaunchError> {
        for rank in self.expected.clone() {
            self.spawn(rank, arguments, environment)
                .map_err(|source| LaunchError::Spawn {
                    rank,
                    world_size,
                    source,
                })?;
        }
        Ok(())
    }

    fn spawn(&mut self, rank: usize, arguments: &[OsString], environment: &[(OsString, OsString)]) -> io::Result<()> {
        let launcher = std::process::id();
        let has_input = self.outputs.has_input(rank);
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(arguments)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .env(variables::RANK, rank.to_string())
            .env(variables::LOCAL_RANK, self.ranks.len().to_string())
            .stdin(if has_input { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        // SAFETY: between fork and exec, the closure makes only system calls that are async-signal-safe, and neither
        // allocates nor locks.
        unsafe { command.pre_exec(move || die_with_parent(launcher)) };
        let mut child = command.spawn()?;
        let pid = Pid::from_child(&child);
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        // From here on, the child is known, and killed if anything goes wrong.
        self.ranks.push(RankProcess {
            rank,
            child,
            signal_sent: None,
            reaped: false,
        });
        if let Some(pipe) = stdin {
            forward_stdin(pipe)?;
        }
        if let Some(pipe) = stdout {
            self.outputs.forward_stdout(rank, pipe.into())?;
        }
        if let Some(pipe) = stderr {
            self.outputs.forward_stderr(rank, pipe.into())?;
        }
        let events = self.events.clone();
        thread::Builder::new()
            .name(format!("wait-rank-{rank}"))
            .spawn(move || {
                wait_without_reaping(pid);
                let _ = events.send(Event::Ended { rank });
            })?;
        Ok(())
    }

    /// What the ranks have written to stderr last.
    pub(super) fn last_words(&self) -> LastWords {
        self.outputs.last_words().clone()
    }

    /// Writes a line of the launcher's own, after what ranks have written before.
    pub(super) fn say(&self, line: String) {
        self.outputs.say(line);
    }

    /// Returns the process ids of the ranks that have not been reaped.
    pub(super) fn running(&self) -> Vec<(usize, u32)> {
        let unreaped = self.ranks.iter().filter(|process| !process.reaped);
        unreaped.map(|process| (process.rank, process.child.id())).collect()
    }

    /// Asks every running rank to end, by SIGINT or SIGTERM.
    pub(super) fn ask_to_end(&mut self, signal: i32) {
        for process in self.ranks.iter_mut().filter(|process| !process.reaped) {
            process.signal_sent = Some(signal);
            send_signal(process.child.id() as libc::pid_t, signal);
        }
    }

    /// Kills every running rank, and what it started.
    pub(super) fn kill(&mut self) {
        for process in self.ranks.iter_mut().filter(|process| !process.reaped) {
            process.signal_sent = Some(libc::SIGKILL);
            send_signal(-(process.child.id() as libc::pid_t), libc::SIGKILL);
        }
    }

    /// Reaps a rank that has ended, kills what it left running, and returns how it ended.
    pub(super) fn reap(&mut self, rank: usize) -> RankEnd {
        let process = self
            .ranks
            .iter_mut()
            .find(|process| process.rank == rank)
            .expect("only ranks that were started end");
        let pid = process.child.id();
        // Before the rank is reaped, while its process group cannot be anybody else's.
        send_signal(-(pid as libc::pid_t), libc::SIGKILL);
        process.reaped = true;
        let outcome = match process.child.wait() {
            Ok(status) => match (status.code(), status.signal()) {
                (Some(code), _) => RankOutcome::Exited(code),
                (None, Some(signal)) => RankOutcome::Killed(signal),
                (None, None) => RankOutcome::Unknown,
            },
            // Somebody else in this process waited for all children.
            Err(_) => RankOutcome::Unknown,
        };
        RankEnd {
            rank,
            pid,
            outcome,
            signal_sent: process.signal_sent,
        }
    }

    /// Kills and reaps the ranks that run, and waits for their output.
    pub(super) fn end(mut self) {
        self.kill_and_reap();
        self.outputs.drain(Some(REAP_LIMIT));
    }

    fn kill_and_reap(&mut self) {
        self.kill();
        let deadline = deadline_after(REAP_LIMIT);
        for process in self.ranks.iter_mut().filter(|process| !process.reaped) {
            while matches!(process.child.try_wait(), Ok(None)) && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(5));
            }
        }
    }

    /// Waits until all output of ended ranks is forwarded.
    pub(super) fn drain_outputs(&mut self, limit: Option<Duration>) {
        self.outputs.drain(limit);
    }
}

impl Drop for Children {
    /// Leaves no rank running, whatever happened.
    fn drop(&mut self) {
        self.kill_and_reap();
    }
}

/// Passes on what this process gets on stdin from now on, until either end is closed. The rank is the leader of a
/// process group in the background, which may not read from the terminal itself.
fn forward_stdin(mut pipe: ChildStdin) -> io::Result<()> {
    let forward = move || {
        // What is left when the rank has ended is not read by any rank.
        let _ = io::copy(&mut io::stdin().lock(), &mut pipe);
    };
    thread::Builder::new().name("stdin".to_owned()).spawn(forward)?;
    Ok(())
}

/// Asks the kernel, in the child, to kill it when the thread that started it ends.
fn die_with_parent(parent: u32) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have died before the call above; then this process has a new one, and no signal will come.
    if std::os::unix::process::parent_id() != parent {
        return Err(Errno::SRCH.into());
    }
    Ok(())
}

/// Sends a signal to a process, or to a group if negative. That it is gone already is no error.
fn send_signal(pid: libc::pid_t, signal: i32) {
    // SAFETY: kill takes two numbers and touches no memory of this process. The target is a child that has not been
    // reaped, or its group, so the number has not been given to another process.
    unsafe { libc::kill(pid, signal) };
}

/// Waits until a child has ended, and leaves it to be reaped.
fn wait_without_reaping(pid: Pid) {
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while matches!(waitid(WaitId::Pid(pid), ended), Err(Errno::INTR)) {}
}
