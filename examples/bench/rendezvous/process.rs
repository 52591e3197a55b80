//! [`Processes`]: the child processes of a job, which end with it, and their messages: the
//! numbers of calls over stdin, and reports as lines of JSON over stdout.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::ops::Range;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::ranks::PART;
use crate::rendezvous::system::out_of_memory;

/// How often the machine's memory is looked at while processes work.
const LOOK: Duration = Duration::from_millis(100);

/// Part of a process in a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Part {
    /// Ranks of the process; none is the store.
    pub own: Range<usize>,
    pub ranks: usize,
    pub port: u16,
    pub token: String,
}

/// Report of a process after its start and after each of its steps.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Reason why nothing more can be done.
    pub error: Option<String>,
    /// Port at which the store listens.
    pub port: Option<u16>,
    /// Numbers of the process, by the names that `child` and `system` give them.
    pub counts: BTreeMap<String, f64>,
    /// Time, in seconds since 1970, when the last rank was done.
    pub end: f64,
    /// Seconds of each call on the slowest rank.
    pub call_secs: Vec<f64>,
    /// Time, in seconds since 1970, when the last rank knew the first cause of a failure.
    pub known: f64,
    /// Ranks that were named as the first cause.
    pub named: BTreeSet<usize>,
}

impl Report {
    /// Returns a number of the process.
    ///
    /// # Panics
    /// When it has none of this name.
    pub fn count(&self, name: &str) -> f64 {
        self.counts[name]
    }

    /// Returns the report of this and another process, or rank.
    pub fn and(mut self, other: Report) -> Report {
        for (name, count) in other.counts {
            *self.counts.entry(name).or_default() += count;
        }
        let calls = self.call_secs.len().max(other.call_secs.len());
        self.call_secs.resize(calls, 0.0);
        for (own, other) in self.call_secs.iter_mut().zip(other.call_secs) {
            *own = own.max(other);
        }
        self.named.extend(other.named);
        Report {
            error: self.error.or(other.error),
            port: self.port.or(other.port),
            end: self.end.max(other.end),
            known: self.known.max(other.known),
            ..self
        }
    }
}

/// Child processes by number, in the order of their starts; dropping them kills and reaps all.
pub struct Processes {
    living: BTreeMap<usize, Process>,
    sender: Sender<(usize, Option<Report>)>,
    /// Reports of all; `None` of one that has ended.
    reports: Receiver<(usize, Option<Report>)>,
    limit: Duration,
}

struct Process {
    child: Child,
    stdin: ChildStdin,
    own: Range<usize>,
}

impl Processes {
    /// Returns none; each report must come within `limit`.
    pub fn new(limit: Duration) -> Self {
        let (sender, reports) = mpsc::channel();
        Self {
            living: BTreeMap::new(),
            sender,
            reports,
            limit,
        }
    }

    /// Starts one, which reports when it has started, and returns its number.
    ///
    /// # Errors
    /// When the operating system gives no process or no thread.
    pub fn start(&mut self, part: &Part) -> anyhow::Result<usize> {
        let mut child = Command::new(std::env::current_exe().context("cannot find this program")?)
            .args(std::env::args_os().skip(1))
            .env(PART, serde_json::to_string(part)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start the process of {}", name(&part.own)))?;
        let stdin = child.stdin.take().expect("it is piped");
        let stdout = child.stdout.take().expect("it is piped");
        let number = self.living.len();
        let own = part.own.clone();
        self.living.insert(number, Process { child, stdin, own });
        let sender = self.sender.clone();
        let listen = move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let report = serde_json::from_str(&line).unwrap_or_else(|_| Report {
                    error: Some(format!("unexpected output {line:?}")),
                    ..Report::default()
                });
                let _ = sender.send((number, Some(report)));
            }
            let _ = sender.send((number, None));
        };
        thread::Builder::new().stack_size(256 << 10).spawn(listen)?;
        Ok(number)
    }

    /// Lets some take their next steps; those that consist of calls have this many.
    ///
    /// # Errors
    /// When one has ended.
    pub fn step(&mut self, numbers: &[usize], calls: u32) -> anyhow::Result<()> {
        for &number in numbers {
            let name = self.name(number);
            let process = self.living.get_mut(&number).context("only the living are asked")?;
            writeln!(process.stdin, "{calls}").with_context(|| format!("cannot reach the process of {name}"))?;
        }
        Ok(())
    }

    /// Waits for the next report of each of some, and returns these together.
    ///
    /// # Errors
    /// When one fails, ends, or does not report in time; when the machine is short of memory.
    pub fn reports(&mut self, numbers: &[usize]) -> anyhow::Result<Report> {
        let deadline = Instant::now() + self.limit;
        let mut asked: BTreeSet<usize> = numbers.iter().copied().collect();
        let mut together = Report::default();
        while let Some(first) = asked.first() {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok((number, report)) = self.reports.recv_timeout(left.min(LOOK)) else {
                if let Some(out) = out_of_memory() {
                    bail!(out);
                }
                ensure!(
                    !left.is_zero(),
                    "no report of {} within {:?}",
                    self.name(*first),
                    self.limit
                );
                continue;
            };
            // One that was killed on purpose may have left words, and ends.
            if self.living.contains_key(&number) {
                let name = self.name(number);
                let report = report.with_context(|| format!("the process of {name} has ended"))?;
                if let Some(error) = &report.error {
                    bail!("{name}: {error}");
                }
                ensure!(asked.remove(&number), "{name} was not asked: {report:?}");
                together = together.and(report);
            }
        }
        Ok(together)
    }

    /// Kills one, as only the operating system knows; or stops it, so that it is there and does nothing.
    ///
    /// # Errors
    /// When it has ended already.
    pub fn strike(&mut self, number: usize, signal: Signal) -> anyhow::Result<()> {
        let name = self.name(number);
        let process = self.living.get_mut(&number).context("a process dies once")?;
        let has_ended = process.child.try_wait()?.is_some();
        ensure!(!has_ended, "the process of {name} has ended by itself");
        kill_process(Pid::from_child(&process.child), signal)?;
        if signal == Signal::KILL {
            process.child.wait()?;
            self.living.remove(&number);
        }
        Ok(())
    }

    pub fn ranks_of(&self, number: usize) -> Range<usize> {
        self.living.get(&number).map_or(0..0, |process| process.own.clone())
    }

    fn name(&self, number: usize) -> String {
        name(&self.ranks_of(number))
    }
}

fn name(own: &Range<usize>) -> String {
    if own.is_empty() {
        "the store".to_owned()
    } else {
        format!("ranks {own:?}")
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for process in self.living.values_mut() {
            // It may have ended.
            let _ = process.child.kill();
        }
        for process in self.living.values_mut() {
            let _ = process.child.wait();
        }
    }
}
