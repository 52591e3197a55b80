//! One fault in one job: starts it, strikes, waits, and judges how it ended.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use tempfile::TempDir;

use crate::cable::{ADDRESSES, Cable};
use crate::judge;
use crate::plan::{Fault, Kind, Layout, Place, STEPS};
use crate::processes::{die_with_parent, processes_with, send, wait_until};
use crate::untrusted_clients::TARGET;
use crate::worker::variables;

/// Longest wait for what must come before a fault can strike.
const READY_LIMIT: Duration = Duration::from_secs(40);
/// Longest wait for the end; what a fault allows is less.
const END_LIMIT: Duration = Duration::from_secs(90);
/// Time for the kernel to end what was killed.
const GONE_LIMIT: Duration = Duration::from_secs(1);

/// The losses of undisturbed jobs.
#[derive(Default)]
pub struct References {
    losses: Mutex<HashMap<Layout, String>>,
}

impl References {
    fn of(&self, layout: Layout) -> anyhow::Result<String> {
        let mut known = self.losses.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(losses) = known.get(&layout) {
            return Ok(losses.clone());
        }
        let mut job = Job::start(layout, STEPS, None)?;
        let ends = job.wait_for_launchers()?;
        ensure!(
            ends.iter().all(|end| end.status.success()),
            "the undisturbed job of {layout} fails: {ends:?}"
        );
        let losses = job.losses();
        ensure!(losses.lines().count() as u64 == STEPS, "{losses}");
        known.insert(layout, losses.clone());
        Ok(losses)
    }
}

/// How a launcher ended.
#[derive(Debug)]
pub struct End {
    pub node: usize,
    pub status: ExitStatus,
    pub stderr: String,
}

/// A job whose time is over, or not.
pub struct Outcome {
    pub ends: Vec<End>,
    /// Process ids of the ranks that came so far.
    pub pids: HashMap<usize, u32>,
    /// From the strike to the end of the last launcher, or of the last rank where the launcher is stopped.
    pub time: Duration,
    pub losses: String,
    pub reference: String,
}

/// Lets a fault strike a job; returns how long the job then took to end.
///
/// # Errors
/// What was wrong with how it ended.
pub fn run(fault: &Fault, references: &References) -> anyhow::Result<Duration> {
    let reference = if fault.kind.is_harmless() {
        references.of(fault.layout)?
    } else {
        String::new()
    };
    let mut job = Job::start(fault.layout, fault.steps(), fault.sleeper())?;
    job.wait_until_ready(fault)?;
    sleep(fault.moment);
    let struck = Instant::now();
    job.strike(fault)?;
    let mut ranks_ended = None;
    if fault.kind == Kind::StopLauncher {
        wait_until(END_LIMIT, || job.rank_processes().is_empty());
        ranks_ended = Some(struck.elapsed());
        send(job.launcher(0), libc::SIGCONT);
    }
    let ends = job.wait_for_launchers()?;
    let outcome = Outcome {
        ends,
        pids: job.pids(),
        time: ranks_ended.unwrap_or_else(|| struck.elapsed()),
        losses: job.losses(),
        reference,
    };
    let messages = || {
        let tell = |end: &End| format!("\n  node {} ({}):\n{}", end.node, end.status, indented(&end.stderr));
        outcome.ends.iter().map(tell).collect::<String>()
    };
    judge::judge(fault, &outcome).with_context(|| format!("after {:.1?}{}", outcome.time, messages()))?;
    job.expect_nothing_left()?;
    Ok(outcome.time)
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

/// A job that runs.
struct Job {
    layout: Layout,
    marker: String,
    folder: TempDir,
    launchers: Vec<Child>,
    cable: Option<Cable>,
}

impl Job {
    fn start(layout: Layout, steps: u64, sleeper: Option<String>) -> anyhow::Result<Job> {
        let folder = TempDir::new()?;
        let marker = folder.path().display().to_string();
        fs::create_dir(folder.path().join("tmp"))?;
        let cable = match layout.place {
            Place::TwoNodes => {
                let name = folder
                    .path()
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned();
                Some(Cable::plug(&name)?)
            }
            _ => None,
        };
        let mut job = Job {
            layout,
            marker,
            folder,
            launchers: Vec::new(),
            cable,
        };
        for node in 0..layout.nodes() {
            let mut command = job.command(node)?;
            command.env(variables::MARKER, &job.marker);
            command.env(variables::STEPS, steps.to_string());
            if let Some(sleeper) = &sleeper {
                command.env(variables::SLEEP, sleeper);
            }
            // SAFETY: between fork and exec, one system call that touches no memory of this process.
            unsafe { command.pre_exec(die_with_parent) };
            job.launchers.push(command.spawn()?);
        }
        Ok(job)
    }

    /// A command on a node with all that a launcher or a stranger needs, but for the marker.
    fn command(&self, node: usize) -> anyhow::Result<Command> {
        let program = std::env::current_exe()?;
        let mut command = match &self.cable {
            Some(cable) => cable.command(node, program),
            None => Command::new(program),
        };
        let path = self.folder.path();
        let log = |name: &str| {
            File::options()
                .create(true)
                .append(true)
                .open(path.join(format!("{name}-{node}")))
        };
        command
            .env(variables::FOLDER, path)
            .env(variables::WORLD_SIZE, self.layout.world_size.to_string())
            .env(variables::TENSOR, self.layout.tensor.to_string())
            .env(variables::PIPELINE, self.layout.pipeline.to_string())
            .env("TMPDIR", path.join("tmp"))
            .env("RAYON_NUM_THREADS", "1")
            .env("RUST_BACKTRACE", "0")
            .env_remove("RANK")
            .env_remove("MASTER_PORT")
            .env_remove("BURN_MEGATRON_ENGINE")
            .stdin(Stdio::null())
            .stdout(log("stdout")?)
            .stderr(log("stderr")?);
        match self.layout.place {
            Place::SharedMemory => drop(command.env("BURN_MEGATRON_ENGINE", "shared-memory")),
            Place::Tcp => drop(command.env("BURN_MEGATRON_ENGINE", "tcp")),
            Place::TwoNodes => {
                command.env(variables::NODE, format!("{node} {}", ADDRESSES[0]));
                command.env("BURN_MEGATRON_HOST", format!("node{node}/boot"));
                command.env("BURN_MEGATRON_JOB_TOKEN", "a secret of enough bytes");
            }
        }
        Ok(command)
    }

    fn launcher(&self, node: usize) -> u32 {
        self.launchers[node].id()
    }

    fn wait_until_ready(&mut self, fault: &Fault) -> anyhow::Result<()> {
        let is_there = |name: &str| self.folder.path().join(name).exists();
        let all_came = || (0..self.layout.world_size).all(|rank| is_there(&format!("rank-{rank}")));
        let is_ready = || match fault.kind {
            Kind::Late(..) | Kind::Missing(_) => all_came() && is_there("sleeping"),
            _ => all_came() && self.losses().lines().count() as u64 >= fault.after_step,
        };
        ensure!(
            wait_until(READY_LIMIT, is_ready),
            "the job does not get so far: {}",
            self.all_stderr()
        );
        Ok(())
    }

    fn strike(&self, fault: &Fault) -> anyhow::Result<()> {
        let pids = self.pids();
        let rank_pid = |rank: usize| pids.get(&rank).copied().context("the rank has come");
        let pause = |pid: u32, time: Duration| {
            send(pid, libc::SIGSTOP);
            sleep(time);
            send(pid, libc::SIGCONT);
        };
        let cable = || self.cable.as_ref().context("there is a cable");
        match fault.kind {
            Kind::KillRank(rank) => send(rank_pid(rank)?, libc::SIGKILL),
            Kind::KillLauncher(node) => send(self.launcher(node), libc::SIGKILL),
            Kind::StopRank(rank) => send(rank_pid(rank)?, libc::SIGSTOP),
            Kind::StopLauncher => send(self.launcher(0), libc::SIGSTOP),
            Kind::PauseRank(rank, time) => pause(rank_pid(rank)?, time),
            Kind::PauseLauncher(node, time) => pause(self.launcher(node), time),
            Kind::Cut => cable()?.cut()?,
            Kind::Blip(time) => {
                cable()?.cut()?;
                sleep(time);
                cable()?.mend()?;
            }
            Kind::Garbage(garbage) => {
                let mut strangers = (0..self.layout.nodes())
                    .map(|node| {
                        let target = format!("{} {garbage}", self.marker);
                        Ok(self.command(node)?.env(TARGET, target).spawn()?)
                    })
                    .collect::<anyhow::Result<Vec<_>>>()?;
                for stranger in &mut strangers {
                    ensure!(stranger.wait()?.success(), "a stranger fails: {}", self.all_stderr());
                }
            }
            // The rank does it itself.
            Kind::Late(..) | Kind::Missing(_) => {}
            Kind::AskLauncher(node, signal) => send(self.launcher(node), signal),
            Kind::AskRank(rank) => send(rank_pid(rank)?, libc::SIGTERM),
        }
        Ok(())
    }

    fn wait_for_launchers(&mut self) -> anyhow::Result<Vec<End>> {
        let begun = Instant::now();
        let mut ends = Vec::new();
        for (node, launcher) in self.launchers.iter_mut().enumerate() {
            let status = loop {
                match launcher.try_wait()? {
                    Some(status) => break status,
                    None if begun.elapsed() > END_LIMIT => {
                        let stderr = fs::read_to_string(self.folder.path().join(format!("stderr-{node}")))?;
                        bail!("the launcher of node {node} does not end:\n{}", indented(&stderr));
                    }
                    None => sleep(Duration::from_millis(5)),
                }
            };
            ends.push((node, status));
        }
        let stderr = |node: usize| fs::read_to_string(self.folder.path().join(format!("stderr-{node}")));
        ends.into_iter()
            .map(|(node, status)| {
                Ok(End {
                    node,
                    status,
                    stderr: stderr(node)?,
                })
            })
            .collect()
    }

    /// What each rank that came has left: process id, job id, store's port.
    fn traces(&self) -> Vec<(usize, Vec<String>)> {
        let ranks: Range<usize> = 0..self.layout.world_size;
        let read = |rank: usize| fs::read_to_string(self.folder.path().join(format!("rank-{rank}"))).ok();
        let words = |text: String| text.split(' ').map(str::to_owned).collect();
        ranks.filter_map(|rank| Some((rank, words(read(rank)?)))).collect()
    }

    fn pids(&self) -> HashMap<usize, u32> {
        let pid = |words: &[String]| words.first()?.parse().ok();
        self.traces()
            .iter()
            .filter_map(|(rank, words)| Some((*rank, pid(words)?)))
            .collect()
    }

    fn rank_processes(&self) -> Vec<u32> {
        let launchers: Vec<u32> = self.launchers.iter().map(Child::id).collect();
        let mut processes = processes_with(variables::MARKER, &self.marker);
        processes.retain(|pid| !launchers.contains(pid));
        processes
    }

    fn losses(&self) -> String {
        fs::read_to_string(self.folder.path().join("losses")).unwrap_or_default()
    }

    fn all_stderr(&self) -> String {
        let read = |node| fs::read_to_string(self.folder.path().join(format!("stderr-{node}"))).unwrap_or_default();
        (0..self.layout.nodes()).map(read).collect()
    }

    /// No process, no shared memory, no port, no temporary file.
    fn expect_nothing_left(&self) -> anyhow::Result<()> {
        let is_empty = |path: &Path| fs::read_dir(path).map(|mut files| files.next().is_none());
        let processes = || processes_with(variables::MARKER, &self.marker);
        ensure!(
            wait_until(GONE_LIMIT, || processes().is_empty()),
            "processes are left: {:?}",
            processes()
        );
        ensure!(is_empty(&self.folder.path().join("tmp"))?, "temporary files are left");
        for (_, words) in self.traces() {
            let [_, job_id, port] = &words[..] else {
                bail!("not three words: {words:?}")
            };
            let shared = fs::read_dir("/dev/shm")?.flatten();
            let left: Vec<_> = shared.map(|file| file.file_name()).collect();
            let left = left
                .iter()
                .find(|name| name.to_string_lossy().contains(job_id.as_str()));
            ensure!(left.is_none(), "shared memory is left: {left:?}");
            if self.cable.is_none() {
                let port = port.parse::<u16>()?;
                let is_free = || match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
                    Err(error) => error.kind() != io::ErrorKind::AddrInUse,
                    Ok(_) => true,
                };
                ensure!(wait_until(GONE_LIMIT, is_free), "port {port} is still taken");
            }
        }
        Ok(())
    }
}

impl Drop for Job {
    /// Ends every process of the job when something was wrong.
    fn drop(&mut self) {
        for launcher in &mut self.launchers {
            let _ = launcher.kill();
            let _ = launcher.wait();
        }
        for pid in processes_with(variables::MARKER, &self.marker) {
            send(pid, libc::SIGKILL);
        }
    }
}
