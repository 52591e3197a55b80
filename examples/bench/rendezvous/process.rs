//! [`Processes`]: the child processes of a job, which end with it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child as SystemChild, ChildStdin, Command as SystemCommand, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail, ensure};
use serde::Serialize;

use crate::rendezvous::messages::{Child, Command, Report};
use crate::rendezvous::system::out_of_memory;

/// How often the machine's memory is looked at while processes work.
const LOOK: Duration = Duration::from_millis(100);

/// How much the ranks give way to the store. In a real job it has a processor when it needs one; here hundreds of ranks
/// that look every 200 µs whether others have come would keep it from running for seconds.
const RANKS_NICENESS: &str = "10";

/// Child processes by number; dropping them kills and reaps all.
pub struct Processes {
    all: Vec<Process>,
    sender: Sender<(usize, Option<Report>)>,
    /// What each says; none when it has ended.
    reports: Receiver<(usize, Option<Report>)>,
    limit: Duration,
}

struct Process {
    child: SystemChild,
    stdin: ChildStdin,
    name: String,
    is_alive: bool,
}

impl Processes {
    /// Returns none; each answer must come within `limit`.
    pub fn new(limit: Duration) -> Self {
        let (sender, reports) = mpsc::channel();
        Self {
            all: Vec::new(),
            sender,
            reports,
            limit,
        }
    }

    /// Starts one, and returns its number. It reports when it has started.
    ///
    /// # Errors
    /// When the operating system gives no process or no thread.
    pub fn start(&mut self, name: String, what: &Child) -> anyhow::Result<usize> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = match what {
            Child::Store { .. } => SystemCommand::new(program),
            Child::Ranks(_) => {
                let mut nice = SystemCommand::new("nice");
                nice.args(["-n", RANKS_NICENESS]).arg(program);
                nice
            }
        };
        let mut child = command
            .args(["rendezvous", "--child"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start the process of {name}"))?;
        let stdin = child.stdin.take().expect("it is piped");
        let stdout = child.stdout.take().expect("it is piped");
        let number = self.all.len();
        self.all.push(Process {
            child,
            stdin,
            name,
            is_alive: true,
        });
        let sender = self.sender.clone();
        let listen = move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let report = serde_json::from_str(&line);
                let report = report.unwrap_or_else(|_| Report::Failed(format!("unexpected output {line:?}")));
                let _ = sender.send((number, Some(report)));
            }
            let _ = sender.send((number, None));
        };
        thread::Builder::new()
            .name("reports".into())
            .stack_size(256 << 10)
            .spawn(listen)?;
        self.say(number, what)?;
        Ok(number)
    }

    /// Asks some to do something, and returns their answers in the same order.
    ///
    /// # Errors
    /// As [`answers`](Self::answers).
    pub fn ask(&mut self, numbers: &[usize], command: Command) -> anyhow::Result<Vec<Report>> {
        for &number in numbers {
            self.say(number, &command)?;
        }
        self.answers(numbers)
    }

    /// Waits for the next report of some, and returns these in the same order.
    ///
    /// # Errors
    /// When one fails, ends, or does not answer in time; when the machine is short of memory.
    pub fn answers(&mut self, numbers: &[usize]) -> anyhow::Result<Vec<Report>> {
        let deadline = Instant::now() + self.limit;
        let mut answers: Vec<Option<Report>> = numbers.iter().map(|_| None).collect();
        while answers.iter().any(Option::is_none) {
            let left = deadline.saturating_duration_since(Instant::now());
            let (number, report) = match self.reports.recv_timeout(left.min(LOOK)) {
                Ok(heard) => heard,
                Err(RecvTimeoutError::Timeout) if !left.is_zero() => {
                    if let Some(out) = out_of_memory() {
                        bail!(out);
                    }
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => {
                    let silent = answers.iter().position(Option::is_none).unwrap_or_default();
                    bail!(
                        "no answer of {} within {:?}",
                        self.all[numbers[silent]].name,
                        self.limit
                    );
                }
                Err(RecvTimeoutError::Disconnected) => unreachable!("this end has a sender, too"),
            };
            let process = &self.all[number];
            match report {
                // Killed on purpose, maybe after its last words.
                _ if !process.is_alive => {}
                None => bail!("the process of {} has ended", process.name),
                Some(Report::Failed(what)) => bail!("{}: {what}", process.name),
                Some(report) => {
                    let place = numbers.iter().position(|asked| *asked == number);
                    match place.map(|place| &mut answers[place]) {
                        Some(place @ None) => *place = Some(report),
                        _ => bail!("{} was not asked: {report:?}", process.name),
                    }
                }
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// Kills one, as nothing but the operating system knows.
    ///
    /// # Errors
    /// When it has ended already.
    pub fn kill(&mut self, number: usize) -> anyhow::Result<()> {
        let process = &mut self.all[number];
        ensure!(
            process.child.try_wait()?.is_none(),
            "the process of {} has ended by itself",
            process.name
        );
        process.is_alive = false;
        process.child.kill()?;
        process.child.wait()?;
        Ok(())
    }

    /// Stops one: it is there, and does nothing.
    ///
    /// # Errors
    /// When it has ended.
    pub fn stop(&mut self, number: usize) -> anyhow::Result<()> {
        let process = &self.all[number];
        let pid = process.child.id().to_string();
        let status = std::process::Command::new("kill").args(["-STOP", &pid]).status()?;
        ensure!(status.success(), "the process of {} cannot be stopped", process.name);
        Ok(())
    }

    fn say(&mut self, number: usize, message: &impl Serialize) -> anyhow::Result<()> {
        let line = serde_json::to_string(message)?;
        let Process { stdin, name, .. } = &mut self.all[number];
        writeln!(stdin, "{line}").map_err(|error| anyhow!("cannot reach the process of {name}: {error}"))
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for process in &mut self.all {
            // It may have ended.
            let _ = process.child.kill();
        }
        for process in &mut self.all {
            let _ = process.child.wait();
        }
    }
}
