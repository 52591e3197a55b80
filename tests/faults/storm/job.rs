//! A job that a fault strikes: its launchers and ranks, what they leave while they run, and that nothing is left after.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use tempfile::TempDir;
use tests::cable::{ADDRESSES, Cable};
use tests::job::FOLDER;
use tests::processes::{Marked, Process, isolate, wait_until};

use crate::faults::storm::plan::{Layout, Place};
use crate::faults::storm::worker::variables;

/// Longest wait for the end; what a fault allows is less.
pub const END_LIMIT: Duration = Duration::from_secs(90);
/// Time for the kernel to end what was killed.
const GONE_LIMIT: Duration = Duration::from_secs(1);

/// How a launcher ended.
#[derive(Debug)]
pub struct End {
    pub node: usize,
    pub status: ExitStatus,
    pub stderr: String,
}

pub fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

/// A job that runs.
pub struct Job {
    layout: Layout,
    // Ended before its folder and its cable go.
    processes: Marked,
    folder: TempDir,
    cable: Option<Cable>,
}

impl Job {
    pub fn start(layout: Layout, steps: u64, sleeper: Option<String>) -> anyhow::Result<Job> {
        let folder = TempDir::new()?;
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
            processes: Marked::new(folder.path().display()),
            folder,
            cable,
        };
        for node in 0..layout.nodes() {
            let mut command = job.command(node)?;
            command.env(variables::STEPS, steps.to_string());
            if let Some(sleeper) = &sleeper {
                command.env(variables::SLEEP, sleeper);
            }
            job.processes.start(&mut command)?;
        }
        Ok(job)
    }

    /// A command on a node with all that a launcher or a stranger needs, but for the marker.
    pub fn command(&self, node: usize) -> anyhow::Result<Command> {
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
        isolate(&mut command)
            .env(FOLDER, path)
            .env(variables::WORLD_SIZE, self.layout.world_size.to_string())
            .env(variables::TENSOR, self.layout.tensor.to_string())
            .env(variables::PIPELINE, self.layout.pipeline.to_string())
            .env("TMPDIR", path.join("tmp"))
            .env_remove("BURN_MEGATRON_ENGINE")
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

    pub fn marker(&self) -> &str {
        self.processes.marker()
    }

    pub fn launcher(&self, node: usize) -> u32 {
        self.processes.launchers[node].id()
    }

    /// The cable between two nodes.
    pub fn cable(&self) -> anyhow::Result<&Cable> {
        self.cable.as_ref().context("there is a cable")
    }

    /// Whether a rank has left a note of this name.
    pub fn has_noted(&self, name: &str) -> bool {
        self.folder.path().join(name).exists()
    }

    pub fn wait_for_launchers(&mut self) -> anyhow::Result<Vec<End>> {
        let begun = Instant::now();
        let path = self.folder.path();
        let stderr = |node: usize| fs::read_to_string(path.join(format!("stderr-{node}")));
        let mut ends = Vec::new();
        for (node, launcher) in self.processes.launchers.iter_mut().enumerate() {
            match launcher.wait_within(END_LIMIT.saturating_sub(begun.elapsed()))? {
                Some(status) => ends.push((node, status)),
                None => bail!(
                    "the launcher of node {node} does not end:\n{}",
                    indented(&stderr(node)?)
                ),
            }
        }
        // All have ended: what one says of another is complete.
        let end = |(node, status)| -> anyhow::Result<End> {
            Ok(End {
                node,
                status,
                stderr: stderr(node)?,
            })
        };
        ends.into_iter().map(end).collect()
    }

    /// What each rank that came has left: process id, job id, store's port.
    fn traces(&self) -> Vec<(usize, Vec<String>)> {
        let ranks = 0..self.layout.world_size;
        let read = |rank: usize| fs::read_to_string(self.folder.path().join(format!("rank-{rank}"))).ok();
        let words = |text: String| text.split(' ').map(str::to_owned).collect();
        ranks.filter_map(|rank| Some((rank, words(read(rank)?)))).collect()
    }

    pub fn pids(&self) -> HashMap<usize, u32> {
        let pid = |words: &[String]| words.first()?.parse().ok();
        self.traces()
            .iter()
            .filter_map(|(rank, words)| Some((*rank, pid(words)?)))
            .collect()
    }

    pub fn rank_processes(&self) -> Vec<u32> {
        let launchers: Vec<u32> = self.processes.launchers.iter().map(Process::id).collect();
        let mut processes = self.processes.processes();
        processes.retain(|pid| !launchers.contains(pid));
        processes
    }

    pub fn losses(&self) -> String {
        fs::read_to_string(self.folder.path().join("losses")).unwrap_or_default()
    }

    pub fn all_stderr(&self) -> String {
        let read = |node| fs::read_to_string(self.folder.path().join(format!("stderr-{node}"))).unwrap_or_default();
        (0..self.layout.nodes()).map(read).collect()
    }

    /// No process, no shared memory, no port, no temporary file.
    pub fn expect_nothing_left(&self) -> anyhow::Result<()> {
        let is_empty = |path: &Path| fs::read_dir(path).map(|mut files| files.next().is_none());
        self.processes.expect_end_within(GONE_LIMIT)?;
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
